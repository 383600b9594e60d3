"""The log of what callers did, and of requests that were refused.

Any client can cause a refusal, so each kind is logged at most once a minute, with how many more there were. An action
is always logged.
"""

from __future__ import annotations

import logging
from typing import Literal

from starlette.requests import Request

from fencepost.web.access import Caller
from fencepost.web.peer import Proxies
from fencepost.web.seldom import Seldom

log = logging.getLogger("fencepost")

CALLER = "fencepost.caller"
"""Where the scope of a request keeps it."""
LONGEST_PATH = 200

Kind = Literal["unknown caller", "role", "job", "browser"]


class AccessLog:
    def __init__(self, proxies: Proxies) -> None:
        self._proxies = proxies
        self._seldom: dict[Kind, Seldom] = {}

    def refused(self, kind: Kind, request: Request, why: str) -> None:
        seldom = self._seldom.setdefault(kind, Seldom(log))
        path = request.scope["path"][:LONGEST_PATH]
        seldom.warning("refused %s %s %r: %s", self._who(request), request.method, path, why)

    def acted(self, request: Request, action: str, job_id: str, fire: str | None) -> None:
        caller: Caller = request.scope[CALLER]
        fields = {
            "event": f"api.{action}",
            "caller": caller.name,
            "role": caller.role,
            "client": self._proxies.client(request),
            "job_id": job_id,
            **({"fire": fire} if fire else {}),
        }
        log.info("%s: %s %s", self._who(request), action, fire or job_id, extra={"fencepost_fields": fields})

    def _who(self, request: Request) -> str:
        client, caller = self._proxies.client(request), request.scope.get(CALLER)
        return client if caller is None else f"{caller.name} ({caller.role}, {client})"
