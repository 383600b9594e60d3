"""The pages of the web app, over a database that the phases have filled; and the one command that starts it all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
from axe_playwright_python.sync_playwright import Axe
from starlette.datastructures import URL
from starlette.requests import Request
from starlette.testclient import TestClient

from stop_sync.database import Database, NoData
from stop_sync.settings import Settings
from stop_sync.tables import DYNAMIC, STATIC, fill
from stop_sync.web import app_of, visitor
from tests.stop_sync.conftest import Compared, environment
from tests.web.browser import browsing
from tests.web.serving import STARTING, a_port, client_of, eventually, served

RUNNING = 90.0
"""Seconds for processes that start and then run the whole pipeline, on a busy machine."""
NASTY = "<b>Österbärn</b> 100%_!"


def settings_in(folder: Path, **variables: str) -> Settings:
    return Settings.of({"STATE_BACKEND": "sqlite", "STOP_SYNC_DATA_DIR": str(folder), **variables})


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path, compared: Compared) -> Settings:
    """Filled, and one stop has a name that must not be taken for anything else."""
    variables = {}
    if request.param == "postgresql":
        variables["STOP_SYNC_DATABASE_URL"] = request.getfixturevalue("postgres_url")
    settings = settings_in(tmp_path, **variables)
    settings.make_folders()
    database = Database(settings.database_url)
    with database.writing() as connection:
        fill(connection, {name: name for name in (*STATIC, *DYNAMIC)}, compared.folder, database.dialect)
        mark = "?" if database.dialect == "sqlite" else "%s"
        first = connection.execute("select min(sloid) from stops").fetchone()[0]
        connection.execute(f"update stops set name = {mark} where sloid = {mark}", (NASTY, first))
        connection.commit()
    return settings


@pytest.fixture
def client(database: Settings) -> Iterator[TestClient]:
    with TestClient(app_of(database), client=("203.0.113.7", 1234)) as client:  # somebody from outside
        yield client


def test_pages_can_be_turned_and_searched(client: TestClient, database: Settings) -> None:
    with Database(database.database_url).reading() as ask:
        [[total]] = ask("select count(*) from stops", ())
        [[urgent]] = ask("select count(*) from problems where priority = ? and kind = ?", (1, "distance"))
    first, last = client.get("/stops").text, client.get("/stops?page=9999").text
    assert f"1 to 50 of {total}" in first
    assert 'href="?page=2"' in first
    assert f"to {total} of {total}" in last
    assert 'rel="next"' not in last
    assert f"of {urgent}<" in client.get("/problems?priority=1&kind=distance").text
    for wrong in ("page=-1", "page=x", "page=²", "q=%00", "priority=9", "kind=no' or 1=1"):
        assert client.get(f"/problems?{wrong}").status_code == 200
    assert client.get("/stops", params={"q": "no such stop"}).text.count("Nothing found") == 1


def test_a_visitor_is_judged_by_the_path_that_was_routed() -> None:
    """A `Host` that ends in an open path must open nothing else, whichever Starlette puts the URL together."""

    def asked(path: str, host: str) -> Request:
        scope = {
            "type": "http",
            "path": path,
            "root_path": "/fencepost",
            "headers": [(b"host", host.encode())],
        }
        request = Request({**scope, "client": ("203.0.113.7", 1), "server": ("127.0.0.1", 80)})
        request._url = URL(f"http://{host}{path}")  # as it was before Starlette 1.0.1
        return request

    assert visitor(asked("/fencepost/api/v1/fires", "app.example/widget.js?")) is None
    assert visitor(asked("/fencepost/api/v1/jobs/widget.js", "app.example")) is None
    assert visitor(asked("/fencepost/api/system/pipeline_status", "app.example")) == "read"


@pytest.mark.parametrize("text", [NASTY, "100%_", "<B>ÖSTERbärn", "österBÄRN</b>"])
def test_what_comes_from_outside_is_text(client: TestClient, database: Settings, text: str) -> None:
    if not database.database_url.startswith("sqlite"):  # its collation decides which letters have capitals
        text = text.replace("Ä", "ä").replace("ö", "Ö")
    page = client.get("/stops", params={"q": text}).text
    assert "1 to 1 of 1<" in page
    assert "&lt;b&gt;Österbärn&lt;/b&gt; 100%_!" in page
    assert "<b>Öster" not in page


def test_visitors_see_the_status_and_nothing_else_of_the_service(client: TestClient) -> None:
    assert client.get("/fencepost/widget.js").status_code == 200
    assert client.get("/api/system/pipeline_status").status_code == 404, "nothing is scheduled yet"
    for path in ("status", "fires", "jobs", "replicas", "events"):
        assert client.get(f"/fencepost/api/v1/{path}").status_code == 401
    assert client.post("/fencepost/api/v1/jobs/stops/trigger", json={}).status_code == 401
    policy = client.get("/stops").headers["Content-Security-Policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy


def test_before_the_first_import_it_says_so(tmp_path: Path, postgres_url: str) -> None:
    for variables in ({}, {"STOP_SYNC_DATABASE_URL": postgres_url}):
        settings = settings_in(tmp_path, **variables)
        with TestClient(app_of(settings)) as client:
            page = client.get("/problems")
            assert page.status_code == 200
            assert "Nothing has been imported yet" in page.text
        database = Database(settings.database_url)
        assert not database.filled(STATIC)
        with pytest.raises(NoData), database.reading() as ask:
            ask("select * from stops", ())


@pytest.mark.browser
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("scheme", "width"), [("light", 1100), pytest.param("dark", 360, marks=pytest.mark.slow)]
)
def test_the_pages_are_accessible_and_fit(
    database: Settings, scheme: Literal["light", "dark"], width: int
) -> None:
    """axe-core finds nothing, by day and by night; on a phone nothing sticks out."""
    with served(app_of(database)) as url, browsing() as browser:
        page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 700})
        for path in ("stops", "problems"):
            page.goto(f"{url}/{path}")
            found = Axe().run(page)
            assert found.violations_count == 0, found.generate_report()
            assert page.evaluate("document.documentElement.scrollWidth") <= width


@contextmanager
def on_this_machine(
    folder: Path, *words: str, pace: str = "0"
) -> Iterator[tuple[subprocess.Popen[bytes], Path, str]]:
    """`python -m stop_sync` with its log and the URL of its pages. Whatever happens, none of its processes is left."""
    log = folder / "told.log"
    with a_port() as sources, a_port() as web, log.open("wb") as output:
        ports = [f"--sources-port={sources}", f"--web-port={web}"]
        popen = subprocess.Popen(
            [sys.executable, "-m", "stop_sync", *ports, "--stops=40", *words],
            cwd=folder,
            env={**environment(), "STOP_SYNC_PACE": pace, "FENCEPOST_READY_DELAY": "0"},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            yield popen, log, f"http://127.0.0.1:{web}"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(popen.pid, signal.SIGKILL)
            popen.wait()


def answered(client: httpx2.Client, path: str) -> httpx2.Response | None:
    try:
        return client.get(path)
    except httpx2.HTTPError:
        return None


@pytest.mark.cluster
@pytest.mark.slow
def test_one_command_starts_and_ends_it_all(tmp_path: Path) -> None:
    with on_this_machine(tmp_path) as (popen, log, web), client_of(web) as client:

        def imported() -> bool:
            assert popen.poll() is None, log.read_text()
            page = answered(client, "/stops")
            return page is not None and "stops in the register" in page.text

        eventually(imported, RUNNING)
        popen.send_signal(signal.SIGINT)
        assert popen.wait(STARTING) == 130
        assert f"Open {web}" in log.read_text()


@pytest.mark.slow
@pytest.mark.cluster
def test_three_replicas_survive_the_death_of_one(tmp_path: Path) -> None:
    """`kill -9` for the service that runs the pipeline: another one goes on with the phase that was cut off, the dead
    one is started again, and the command itself goes on."""
    with (
        on_this_machine(tmp_path, "--replicas", "3", pace="1") as (popen, log, web),
        client_of(web) as client,
    ):

        def status() -> dict[str, Any]:
            assert popen.poll() is None, log.read_text()
            answer = answered(client, "/api/system/pipeline_status")
            return answer.json() if answer is not None and answer.status_code == 200 else {}

        def runner() -> int:
            """The process that runs the pipeline; 0: none, or the one that was started by hand."""
            replicas = client.get("/fencepost/api/v1/replicas").json()["items"]
            busy = [each["pid"] for each in replicas if each["running"]]
            return next((pid for pid in busy if pid in service_pids(popen.pid)), 0)

        eventually(lambda: len(service_pids(popen.pid)) == 3 and status().get("last_success_at"), RUNNING)
        pid = eventually(lambda: status().get("phase") == "matching" and runner(), RUNNING)
        key, before = status()["run_id"], status()["last_success_at"]
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: f"Service {pid}: SIGKILL. It is started again" in log.read_text())
        eventually(lambda: status().get("last_success_at", "") > before, RUNNING)
        assert status()["run_id"] >= key
        eventually(lambda: len(service_pids(popen.pid) - {pid}) == 3, RUNNING)
        popen.send_signal(signal.SIGINT)
        assert popen.wait(STARTING) == 130


def service_pids(parent: int) -> set[int]:
    found = set()
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        with suppress(OSError):
            if b"stop_sync.service" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.add(int(child))
    return found
