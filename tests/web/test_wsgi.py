"""The service under WSGI, behind a real server of the standard library."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.validate import validator

import httpx2
import pytest
from playwright.sync_api import expect

from fencepost.web.auth import Caller
from fencepost.web.gate import MOST_BODY_BYTES
from fencepost.web.wsgi import WsgiApp
from tests.unit.test_forks import in_child
from tests.web.browser import browsing
from tests.web.sample import ended, sample, triggered
from tests.web.serving import client_of, eventually


class Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None: ...


class Threaded(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def server_bind(self) -> None:
        super().server_bind()
        self.base_environ["SERVER_NAME"] = "127.0.0.1"  # it asks the resolver


def mounted(app: Any) -> Any:
    """As a dispatcher does it."""

    def dispatch(environ: dict[str, Any], start_response: Any) -> Any:
        prefix, path = "/fencepost", environ["PATH_INFO"]
        assert path.startswith(prefix)
        environ["SCRIPT_NAME"], environ["PATH_INFO"] = prefix, path.removeprefix(prefix)
        return app(environ, start_response)

    return dispatch


@contextlib.contextmanager
def under_wsgi(app: Any, prefix: str = "") -> Iterator[httpx2.Client]:
    server = make_server("127.0.0.1", 0, validator(app), Threaded, Quiet)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        with client_of(f"http://127.0.0.1:{server.server_port}{prefix}") as client:
            yield client
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_api_is_the_same_wherever_it_is_mounted() -> None:
    scheduler = sample()
    with scheduler.background(), under_wsgi(mounted(scheduler.wsgi()), "/fencepost") as client:
        assert client.get("/readyz").json() == {"ready": True}
        key = triggered(client, "report", args={"region": "für"})
        assert ended(client, key)["state"] == "succeeded"
        assert client.get(f"/api/v1/fires/{key}").json()["args"] == {"region": "für"}
        assert client.get("/api/v1/openapi.json").json()["servers"] == [{"url": "/fencepost"}]
        jobs = client.get("/api/v1/jobs", headers={"Accept-Encoding": "gzip"})
        assert [job["id"] for job in jobs.json()["items"]] == ["hold", "nasty", "report"]
        assert jobs.headers["content-encoding"] == "gzip"
        tag = client.get("/api/v1/openapi.json").headers["etag"]
        again = client.get("/api/v1/openapi.json", headers={"If-None-Match": tag})
        assert (again.status_code, again.content) == (304, b"")
        assert client.get("/widget.js").headers["content-type"].startswith("text/javascript")
        assert "fencepost_build_info" in client.get("/metrics").text


def test_events_are_polled_each_answer_goes_on_where_the_last_one_ended() -> None:
    scheduler = sample()
    with scheduler.background(), under_wsgi(scheduler.wsgi()) as client:
        first = client.get("/api/v1/events")
        assert first.headers["content-type"].startswith("text/event-stream")
        assert first.text.startswith("retry: 3000\n\n")
        assert "event: hello" in first.text
        [last_id] = re.findall(r"^id: (.*)$", first.text, re.M)
        key = triggered(client, "report")
        seen: list[str] = []

        def told() -> bool:
            """What each answer adds, until the run's end is told."""
            nonlocal last_id
            text = client.get("/api/v1/events", headers={"Last-Event-ID": last_id}).text
            assert "event: hello" not in text
            if ids := re.findall(r"^id: (.*)$", text, re.M):
                last_id = ids[-1]
            seen.append(text)
            return "succeeded" in text

        eventually(told)
        assert sum(f'"{key}"' in text and "succeeded" in text for text in seen) == 1


def test_a_stream_holds_no_thread() -> None:
    scheduler = sample()
    with scheduler.background():
        app = scheduler.wsgi()
        before = threading.active_count()
        for _ in range(20):
            status, text = called(app, "/api/v1/events")
            assert status == 200
            assert "hello" in text
        assert threading.active_count() <= before + 4  # its loop, the reader's, the store's


@pytest.fixture(autouse=True)
def _no_thread_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    made: list[WsgiApp] = []
    before = set(threading.enumerate())
    original = WsgiApp.__init__

    def remembered(self: WsgiApp, *args: Any, **options: Any) -> None:
        made.append(self)
        original(self, *args, **options)

    monkeypatch.setattr(WsgiApp, "__init__", remembered)
    yield
    for app in made:
        app.close()
    assert "fencepost-web" not in {thread.name for thread in set(threading.enumerate()) - before}


def called(app: Any, path: str, **environ: Any) -> tuple[int, str]:
    answer = app.answer(
        {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": path,
            "REMOTE_ADDR": "127.0.0.1",
            "SERVER_NAME": "127.0.0.1",
            "HTTP_HOST": "127.0.0.1",
            **environ,
        }
    )
    return answer.status, answer.body.decode()


def test_what_is_too_large_is_refused() -> None:
    scheduler = sample()
    with scheduler.background(), under_wsgi(scheduler.wsgi()) as client:
        body = b'{"args": {"region": "' + b"x" * MOST_BODY_BYTES + b'"}}'
        headers = {"Content-Type": "application/json"}
        refused = client.post("/api/v1/jobs/report/trigger", content=body, headers=headers)
        assert refused.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        assert client.get("/api/v1/status", headers={"X-Large": "x" * 40_000}).status_code == 431


@pytest.mark.parametrize(
    "environ",
    [
        {"REMOTE_ADDR": "203.0.113.9"},
        {"REMOTE_ADDR": ""},
        {"SERVER_NAME": "0.0.0.0"},
        {"HTTP_HOST": "example.com"},
        {"HTTP_X_FORWARDED_FOR": "127.0.0.1"},
        {"HTTP_X_REAL_IP": "127.0.0.1"},
    ],
)
def test_without_a_token_only_this_machine_is_answered(environ: dict[str, str]) -> None:
    scheduler = sample()
    with scheduler.background():
        app = scheduler.wsgi()
        assert called(app, "/api/v1/status")[0] == 200
        assert called(app, "/api/v1/status", **environ)[0] == 401


def test_the_hosts_sign_in_is_asked_on_the_thread_of_the_request() -> None:
    asked: list[str] = []

    def authorize(environ: Any) -> Caller | None:
        asked.append(threading.current_thread().name)
        return {"ann": Caller("operate", "ann"), "bob": Caller("read", "bob")}.get(
            environ.get("HTTP_X_USER", "")
        )

    scheduler = sample()
    with scheduler.background():
        app = scheduler.wsgi(authorize=authorize)
        assert called(app, "/readyz")[0] == 200
        assert asked == []
        assert called(app, "/api/v1/status")[0] == 401
        assert called(app, "/api/v1/status", HTTP_X_USER="bob")[0] == 200
        trigger = {"REQUEST_METHOD": "POST", "HTTP_X_USER": "bob"}
        assert called(app, "/api/v1/jobs/report/trigger", **trigger)[0] == 403
        assert called(app, "/api/v1/jobs/report/trigger", **{**trigger, "HTTP_X_USER": "ann"})[0] == 202
        assert set(asked) == {threading.current_thread().name}


def test_one_that_was_not_started_says_what_to_call() -> None:
    status, text = called(sample().wsgi(), "/api/v1/status")
    assert status == 503
    assert "start_in_background()" in text


def test_one_that_only_looks_needs_no_start(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/jobs.db"
    with sample(store).background():
        looking = sample(store)
        app = looking.wsgi(replica=False)
        assert called(app, "/readyz") == (200, '{"ready":true}')
        eventually(lambda: '"report"' in called(app, "/api/v1/jobs")[1])
        assert looking.replica is None


def test_a_forked_child_answers_and_takes_part(tmp_path: Path) -> None:
    scheduler = sample(f"sqlite:///{tmp_path}/jobs.db")
    with scheduler.background():
        app = scheduler.wsgi()
        assert called(app, "/api/v1/status")[0] == 200

        def answers() -> bool:
            answered = called(app, "/api/v1/status")[0] == 200 and scheduler.replica is not None
            scheduler.stop_in_background()
            return answered

        assert in_child(answers)
        assert called(app, "/api/v1/status")[0] == 200


def test_what_fails_in_the_application_is_500_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    scheduler = sample()
    with scheduler.background():
        app = scheduler.wsgi()
        assert isinstance(app, WsgiApp)
        called(app, "/readyz")

        async def broken(*_: Any) -> None:
            raise RuntimeError("no luck")

        assert app._app is not None
        app._app._app = broken  # type: ignore[assignment]
        assert called(app, "/api/v1/status")[0] == 500
    assert "no luck" in caplog.text


def test_the_dashboard_is_served_with_links_below_its_mount() -> None:
    scheduler = sample()
    with scheduler.background(), under_wsgi(mounted(scheduler.wsgi()), "/fencepost") as client:
        page = client.get("/", headers={"Accept": "text/html"})
        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/html")
        assert client.get("/jobs/report", headers={"Accept": "text/html"}).status_code == 200
        for address in re.findall(r'(?:href|src)="(/[^"]*)"', page.text):
            assert address.startswith("/fencepost/"), address


@pytest.mark.slow
@pytest.mark.browser
def test_a_page_stays_live_although_each_answer_ends_at_once() -> None:
    scheduler = sample()
    with (
        scheduler.background(),
        under_wsgi(mounted(scheduler.wsgi()), "/fencepost") as client,
        browsing() as browser,
    ):
        page, polls = browser.new_page(), []
        page.on("requestfinished", lambda asked: polls.append(asked.url) if "/events" in asked.url else None)
        page.add_init_script(WATCH)
        page.goto(f"{client.base_url}jobs/report")
        while len(polls) < 3:
            page.wait_for_timeout(100)
        key = triggered(client, "report")
        expect(page.locator("main")).to_contain_text(key.partition("!")[2])
        assert "lost" not in page.evaluate("globalThis.seen")
        page.close()


WATCH = """
globalThis.seen = [];
addEventListener("DOMContentLoaded", () => {
  const light = document.querySelector("#live");
  new MutationObserver(() => seen.push(light.dataset.state)).observe(light, { attributes: true });
});
"""
