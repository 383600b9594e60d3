"""What went wrong, as RFC 9457 has it: `application/problem+json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from fencepost.errors import (
    AnotherRunIsActive,
    ConfigurationError,
    Conflict,
    FencepostError,
    NotFound,
    QueueFull,
    StoreCorrupt,
    UsageError,
)
from fencepost.scheduler.editing import ChangedMeanwhile
from fencepost.store.unreadable import RowUnreadable


class Problem(Exception):
    """An answer that is not what was asked for. `more`: fields of its own."""

    def __init__(
        self, status: int, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})
        self.more = more

    def response(self) -> Response:
        body = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            **self.more,
        }
        return Response(
            json.dumps(body), self.status, headers=self.headers, media_type="application/problem+json"
        )


def problem_of(error: Exception) -> Problem:
    """Every error that an endpoint may raise on purpose: the one place where outcomes become statuses."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, HTTPException):
        return Problem(error.status_code, error.detail, headers=error.headers)
    if isinstance(error, NotFound):
        return Problem(404, error.text)
    if isinstance(error, QueueFull):
        return Problem(429, str(error), headers={"Retry-After": "10"})
    if isinstance(error, ChangedMeanwhile):
        return Problem(412, str(error))
    if isinstance(error, AnotherRunIsActive | Conflict | RowUnreadable):
        return Problem(409, str(error))
    if isinstance(error, StoreCorrupt):
        return Problem(503, str(error))
    if isinstance(error, ConfigurationError | UsageError):
        return Problem(422, str(error))
    return Problem(503, str(error), headers={"Retry-After": "1"})


async def answer_problem(_: Request, error: Exception) -> Response:
    return problem_of(error).response()


async def answer_fault(_: Request, error: Exception) -> Response:
    """A fault of the service, not of the caller. The server logs it; the answer gives no internal details."""
    return Problem(500, "unexpected; the log of the service says more").response()


HANDLED: Mapping[type[Exception], Any] = {
    Problem: answer_problem,
    HTTPException: answer_problem,
    FencepostError: answer_problem,
    Exception: answer_fault,
}
