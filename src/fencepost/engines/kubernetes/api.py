"""The few requests to the API server that are needed, as plain HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

import httpx2

from fencepost.engines.kubernetes.access import Access
from fencepost.errors import FencepostError

PATIENCE = 15.0
"""Seconds for an answer."""
WATCHED_FOR = 30
"""Seconds after which the server ends a watch, and we begin the next. No longer, for a connection that is dead without
a sign is noticed when this time is over."""
LINE_LIMIT = 4_000_000
"""Characters of one event."""

Object = dict[str, Any]


class ApiError(FencepostError):
    """The API server has answered, and refused."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"Kubernetes: {status}: {message}")
        self.status = status


class Api:
    """Jobs and pods of one namespace."""

    def __init__(self, access: Access) -> None:
        self.namespace = access.namespace
        self._access = access
        self._jobs = f"/apis/batch/v1/namespaces/{access.namespace}/jobs"
        self._pods = f"/api/v1/namespaces/{access.namespace}/pods"
        self._open: Any = None

    @property
    def _client(self) -> Any:
        if self._open is None:
            self._open = httpx2.AsyncClient(
                base_url=self._access.server,
                verify=True if self._access.tls is None else self._access.tls,
                timeout=PATIENCE,
                trust_env=False,
                follow_redirects=False,
            )
        return self._open

    async def create(self, job: Object) -> None:
        await self._ask("POST", self._jobs, body=job)

    async def job(self, name: str) -> Object:
        found: Object = (await self._ask("GET", f"{self._jobs}/{name}")).json()
        return found

    async def jobs(self, selector: str) -> tuple[list[Object], str]:
        """All, and the version that they are of."""
        found: list[Object] = []
        asked = {"labelSelector": selector, "limit": "500"}
        while True:
            page = (await self._ask("GET", self._jobs, asked)).json()
            found += page.get("items") or []
            if not (more := page["metadata"].get("continue")):
                return found, str(page["metadata"]["resourceVersion"])
            asked["continue"] = more

    async def watch(self, selector: str, version: str) -> AsyncIterator[Object]:
        """What happens after that version."""
        asked = {
            "labelSelector": selector,
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCHED_FOR),
        }
        timeout = httpx2.Timeout(PATIENCE, read=WATCHED_FOR + PATIENCE)
        async with self._client.stream(
            "GET", self._jobs, params=asked, headers=self._access.headers(), timeout=timeout
        ) as answer:
            if answer.status_code != 200:
                await answer.aread()
                raise _error(answer)
            async for line in answer.aiter_lines():
                if len(line) > LINE_LIMIT:
                    raise ApiError(500, "an event is too long")
                if line:
                    yield json.loads(line)

    async def pods_of(self, name: str) -> list[Object]:
        asked = {"labelSelector": f"job-name={name}", "limit": "20"}
        return (await self._ask("GET", self._pods, asked)).json().get("items") or []

    async def log(self, pod: str, container: str, characters: int) -> str:
        asked = {"container": container, "tailLines": "200", "limitBytes": "262144"}
        return str((await self._ask("GET", f"{self._pods}/{pod}/log", asked)).text)[-characters:]

    async def delete(self, name: str) -> None:
        """With its pods, which end first: as long as the Job is there, something of it may run."""
        with suppress_missing():
            await self._ask("DELETE", f"{self._jobs}/{name}", {"propagationPolicy": "Foreground"})

    async def keep_for(self, name: str, seconds: int) -> None:
        with suppress_missing():
            await self._ask(
                "PATCH",
                f"{self._jobs}/{name}",
                body={"spec": {"ttlSecondsAfterFinished": seconds}},
                kind="application/merge-patch+json",
            )

    async def close(self) -> None:
        """It may be used again, on another event loop."""
        if self._open is not None:
            client, self._open = self._open, None
            await client.aclose()

    async def _ask(
        self,
        method: str,
        path: str,
        asked: Mapping[str, str] | None = None,
        body: Object | None = None,
        kind: str = "application/json",
    ) -> Any:
        """The HTTP library's response, if the server did what it was asked."""
        headers = self._access.headers()
        content = None
        if body is not None:
            headers["Content-Type"] = kind
            content = json.dumps(body)
        answer = await self._client.request(method, path, params=asked, content=content, headers=headers)
        if answer.status_code >= 300:
            raise _error(answer)
        return answer


class suppress_missing(suppress):
    """What is to be changed is gone already."""

    def __init__(self) -> None:
        super().__init__(ApiError)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        return isinstance(error, ApiError) and error.status == 404


def _error(answer: Any) -> ApiError:
    message = answer.text[:500]
    with suppress(ValueError, AttributeError, TypeError):
        message = str(answer.json()["message"])[:500]
    return ApiError(answer.status_code, message)
