"""The API server: the paths of `batch/v1` Jobs and `v1` pods that clients use, in front of a `State`."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import uvicorn
import yaml
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.servers.kubernetes.state import Object, Refused, State, selected
from tests.servers.ports import HOST, Port

NAMESPACE = "batch"
TOKEN = "token-of-the-service-account"
LOOK = 0.02
"""Seconds between two looks for what a watcher has not seen."""


class ApiServer:
    """A context manager. `state` outlives restarts, as etcd does."""

    def __init__(self) -> None:
        self.state = State()
        self.requests: list[tuple[str, str, int]] = []
        """Method, path and status, in order."""
        self.lost_replies = 0
        """Every so many creations are done and answered 504; 0: none."""
        self._created = 0
        self._port = Port()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port.number}"

    def kubeconfig(self, folder: Path) -> Path:
        return kubeconfig(self.url, folder)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._port.release()

    def start(self) -> None:
        config = uvicorn.Config(
            self._app(), HOST, self._port.number, log_level="critical", timeout_graceful_shutdown=0
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive(), "the API server did not start"
            time.sleep(0.01)

    def stop(self) -> None:
        """At once: connections are cut, watches among them."""
        self._server.should_exit = self._server.force_exit = True
        with suppress(RuntimeError):  # its loop has ended by itself
            self._server.servers[0].get_loop().call_soon_threadsafe(self._abort)
        self._thread.join(20)
        assert not self._thread.is_alive()

    def _abort(self) -> None:
        """As the kernel does when a process dies."""
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()

    def restart(self, away: float = 0.0) -> None:
        self.stop()
        time.sleep(away)
        self.start()

    def _app(self) -> Starlette:
        jobs = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
        pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
        answers = {
            (jobs, "GET"): self._list_jobs,
            (jobs, "POST"): self._create,
            (jobs + "/{name}", "GET"): self._job,
            (jobs + "/{name}", "DELETE"): self._delete,
            (jobs + "/{name}", "PATCH"): self._patch,
            (pods, "GET"): self._list_pods,
            (pods + "/{name}/log", "GET"): self._log,
        }
        return Starlette(
            routes=[
                Route(path, self._answering(function), methods=[method])
                for (path, method), function in answers.items()
            ]
        )

    def _answering(self, function: Any) -> Any:
        async def answer(request: Request) -> Response:
            try:
                if request.headers.get("authorization") != f"Bearer {TOKEN}":
                    raise Refused(401, "Unauthorized", "Unauthorized")
                response: Response = await function(request)
            except Refused as refused:
                response = JSONResponse(_status(refused), refused.code)
            self.requests.append((request.method, request.url.path, response.status_code))
            return response

        return answer

    async def _create(self, request: Request) -> Response:
        given = await request.json()
        _check(given)
        made = self.state.create("jobs", given)
        self._created += 1
        if self.lost_replies and self._created % self.lost_replies == 0:
            raise Refused(504, "Timeout", "the server may still be processing the request")
        return JSONResponse(made, 201)

    async def _job(self, request: Request) -> Response:
        return JSONResponse(self.state.get("jobs", request.path_params["name"]))

    async def _list_jobs(self, request: Request) -> Response:
        asked = request.query_params
        selector = asked.get("labelSelector", "")
        if asked.get("watch") == "true":
            until = time.monotonic() + float(asked.get("timeoutSeconds", "60"))
            version = int(asked["resourceVersion"])
            return StreamingResponse(self._watch(selector, version, until), media_type="application/json")
        found, version = self.state.all("jobs", selector)
        start, limit = int(asked.get("continue", "0")), int(asked.get("limit", "500"))
        page: dict[str, Any] = {"resourceVersion": str(version)}
        if len(found) > start + limit:
            page["continue"] = str(start + limit)
        return JSONResponse({"kind": "JobList", "metadata": page, "items": found[start : start + limit]})

    async def _watch(self, selector: str, version: int, until: float) -> AsyncIterator[str]:
        while time.monotonic() < until and not self._server.should_exit:
            try:
                events = self.state.since("jobs", version)
            except Refused as refused:
                yield _line("ERROR", _status(refused))
                return
            for event in events:
                version = event.version
                if selected(event.object, selector):
                    yield _line(event.type, event.object)
            await asyncio.sleep(LOOK)
        # The last line names how far this watch has come, although nothing of it may have happened since.
        bookmark = {"kind": "Job", "metadata": {"resourceVersion": str(version)}}
        yield _line("BOOKMARK", bookmark)

    async def _delete(self, request: Request) -> Response:
        name = request.path_params["name"]
        found = self.state.get("jobs", name)
        if request.query_params.get("propagationPolicy") == "Foreground":

            def mark(job: Object) -> None:
                job["metadata"]["deletionTimestamp"] = now()
                job["metadata"]["finalizers"] = ["foregroundDeletion"]

            found = self.state.change("jobs", name, mark) or found
        else:
            self.state.remove("jobs", name)
        return JSONResponse(found)

    async def _patch(self, request: Request) -> Response:
        if request.headers["content-type"] != "application/merge-patch+json":
            raise Refused(415, "UnsupportedMediaType", "only merge patches are played here")
        patch = await request.json()
        name = request.path_params["name"]
        self.state.get("jobs", name)
        return JSONResponse(self.state.change("jobs", name, lambda job: _merge(job, patch)))

    async def _list_pods(self, request: Request) -> Response:
        found, version = self.state.all("pods", request.query_params.get("labelSelector", ""))
        metadata = {"resourceVersion": str(version)}
        return JSONResponse({"kind": "PodList", "metadata": metadata, "items": found})

    async def _log(self, request: Request) -> Response:
        name = request.path_params["name"]
        self.state.get("pods", name)
        lines = self.state.logs.get(name, b"").splitlines(keepends=True)
        tail = lines[-int(request.query_params.get("tailLines", "1000000")) :]
        return PlainTextResponse(b"".join(tail)[: int(request.query_params.get("limitBytes", "1000000"))])


def kubeconfig(url: str, folder: Path) -> Path:
    path = folder / "kubeconfig"
    context = {"cluster": "c", "user": "u", "namespace": NAMESPACE}
    named = {
        "current-context": "tests",
        "contexts": [{"name": "tests", "context": context}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
    }
    path.write_text(yaml.safe_dump(named))
    return path


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _line(type: str, object: Object) -> str:
    return json.dumps({"type": type, "object": object}) + "\n"


def _merge(into: Object, patch: Object) -> None:
    for name, value in patch.items():
        if isinstance(value, dict):
            _merge(into.setdefault(name, {}), value)
        else:
            into[name] = value


def _check(job: Object) -> None:
    """What admission would refuse, as far as it matters here."""
    spec = job.get("spec", {}).get("template", {}).get("spec", {})
    containers = spec.get("containers") or []
    if not containers or not all(each.get("name") and each.get("image") for each in containers):
        raise Refused(422, "Invalid", "spec.template.spec.containers: Required value")
    if spec.get("restartPolicy") not in ("Never", "OnFailure"):
        raise Refused(422, "Invalid", "spec.template.spec.restartPolicy: Unsupported value")
    if len(job["metadata"]["name"]) > 63:
        raise Refused(422, "Invalid", "metadata.name: must be no more than 63 characters")


def _status(refused: Refused) -> Object:
    return {
        "kind": "Status",
        "status": "Failure",
        "code": refused.code,
        "reason": refused.reason,
        "message": refused.message,
    }
