"""The extension inside of this process: declaring, contexts, configuration, views, commands."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from flask import Blueprint, Flask, current_app, request

from fencepost import ConfigurationError, Scheduler, State, UsageError, every
from fencepost.flask import Fencepost
from fencepost.flask.taking_part import takes_part
from fencepost.web.auth import Caller
from tests.unit.test_forks import in_child
from tests.web.serving import QUICK, eventually


def site(**config: Any) -> Flask:
    app = Flask("site")
    app.config.update(FENCEPOST_STORE="memory://", FENCEPOST_START=False, NAME="here")
    app.config.update({f"FENCEPOST_{name.upper()}": value for name, value in QUICK.items()})
    app.config.update(config)
    return app


def test_functions_and_coroutines_run_in_a_context_of_the_application_and_of_their_own() -> None:
    app = site()
    fencepost = Fencepost(app)
    contexts: list[Any] = []

    @fencepost.task(id="function")
    def function(word: str) -> str:
        contexts.append(current_app._get_current_object())  # type: ignore[attr-defined]
        return f"{word} {current_app.config['NAME']}"

    @fencepost.task(id="coroutine")
    async def coroutine() -> str:
        await asyncio.sleep(0)
        return str(current_app.config["NAME"])

    with fencepost.scheduler.background():
        assert fencepost.sync.trigger(function, args={"word": "from"}).result(60) == "from here"
        assert fencepost.sync.trigger(coroutine).result(60) == "here"
        assert contexts == [app]
    assert function.__name__ == "function"


def test_what_is_torn_down_with_a_context_is_torn_down_after_each_run() -> None:
    app = site()
    fencepost, ended = Fencepost(app), []

    @app.teardown_appcontext
    def teardown(error: BaseException | None) -> None:
        ended.append(type(error).__name__)

    @fencepost.task(id="fine")
    def fine() -> None: ...

    @fencepost.task(id="broken")
    def broken() -> None:
        raise ValueError("no")

    with fencepost.scheduler.background():
        fencepost.sync.trigger(fine).wait(60)
        assert ended == ["NoneType"]
        assert fencepost.sync.trigger(broken).wait(60).state is State.FAILED
        assert ended[1:] == ["ValueError"]


def test_a_factory_declares_before_it_initialises_and_each_application_has_its_own_scheduler() -> None:
    fencepost = Fencepost()

    @fencepost.job(every(hours=1), id="hourly")
    def hourly() -> str:
        return str(current_app.config["NAME"])

    with pytest.raises(UsageError, match="init_app"):
        _ = fencepost.scheduler
    first, second = site(NAME="first"), site(NAME="second")
    fencepost.init_app(first)
    fencepost.init_app(second)
    assert fencepost.scheduler is second.extensions["fencepost"]
    with first.app_context():
        assert fencepost.scheduler is first.extensions["fencepost"]
        with fencepost.scheduler.background():
            assert fencepost.sync.trigger(hourly).result(60) == "first"
    with pytest.raises(UsageError, match="already"):
        fencepost.init_app(first)


def test_configuration_is_read_and_arguments_win() -> None:
    app = site(FENCEPOST_NAMESPACE="configured", FENCEPOST_SLOTS=3)
    scheduler = Fencepost(app, slots=5).scheduler
    assert (scheduler.settings.namespace, scheduler.settings.slots) == ("configured", 5)
    with pytest.raises(ConfigurationError, match="NAMESPASE|namespase"):
        Fencepost(site(FENCEPOST_NAMESPASE="typo"))


def test_handlers_are_called_in_a_context() -> None:
    fencepost, seen = Fencepost(site()), []

    @fencepost.on("succeeded")
    def note(event: Any) -> None:
        seen.append((event.key, current_app.config["NAME"]))

    @fencepost.task(id="fine")
    def fine() -> None: ...

    with fencepost.scheduler.background():
        key = fencepost.sync.trigger(fine).wait(60).key
        eventually(lambda: seen == [(key, "here")])


# --- who takes part ----------------------------------------------------------------------------------------


def test_an_application_under_test_takes_no_part() -> None:
    assert not takes_part(site(FENCEPOST_START=None, TESTING=True))
    assert takes_part(site(FENCEPOST_START=True, TESTING=True))
    assert takes_part(site(FENCEPOST_START=None))


def test_it_starts_at_the_first_request_at_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.flask.taking_part.SETTLED", 60)
    app = site(FENCEPOST_START=True)
    fencepost = Fencepost(app)
    app.add_url_rule("/", view_func=lambda: "ok")
    assert not fencepost.scheduler.replica
    assert app.test_client().get("/").status_code == 200
    assert fencepost.scheduler.replica is not None
    fencepost.scheduler.stop_in_background()


def test_it_starts_without_a_request_when_it_is_loaded() -> None:
    fencepost = Fencepost(site(FENCEPOST_START=True))
    eventually(lambda: fencepost.scheduler.replica is not None)
    fencepost.scheduler.stop_in_background()


def test_a_store_that_cannot_be_used_is_logged_and_the_site_is_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = site(FENCEPOST_START=True, FENCEPOST_STORE=f"sqlite:///{tmp_path}/no/such/folder/jobs.db")
    Fencepost(app)
    app.add_url_rule("/", view_func=lambda: "ok")
    assert app.test_client().get("/").status_code == 200
    eventually(lambda: "this process runs no jobs" in caplog.text)


@pytest.mark.parametrize(
    ("options", "child", "starts"),
    [
        ({}, "", True),
        ({"debug": True}, "", False),
        ({"debug": True}, "true", True),
        ({"use_reloader": True}, "", False),
    ],
)
def test_a_script_starts_with_its_server_and_not_in_the_parent_of_the_reloader(
    options: dict[str, Any], child: str, starts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    monkeypatch.setenv("WERKZEUG_RUN_MAIN", child)
    app = Flask("__main__")
    app.config.update(FENCEPOST_STORE="memory://", FENCEPOST_START=True)
    fencepost = Fencepost(app)
    run_simple = lambda *_, **__: seen.append(fencepost.scheduler.replica is not None)  # noqa: E731
    monkeypatch.setattr("werkzeug.serving.run_simple", run_simple)
    app.run(**options)
    assert seen == [starts]
    fencepost.scheduler.stop_in_background()


def test_a_server_that_forks_after_loading_starts_in_the_child_with_its_first_request(tmp_path: Path) -> None:
    app = site(FENCEPOST_START=True, FENCEPOST_STORE=f"sqlite:///{tmp_path}/jobs.db")
    fencepost = Fencepost(app)
    app.add_url_rule("/", view_func=lambda: "ok")
    eventually(lambda: fencepost.scheduler.replica is not None)

    def serves() -> bool:
        assert fencepost.scheduler.replica is None
        assert app.test_client().get("/").status_code == 200
        started = fencepost.scheduler.replica is not None
        fencepost.scheduler.stop_in_background()
        return started

    assert in_child(serves)
    fencepost.scheduler.stop_in_background()


# --- views -----------------------------------------------------------------------------------------------------


def test_the_blueprint_serves_the_api_and_asks_the_application_who_it_is() -> None:
    app = site(FENCEPOST_START=True)
    fencepost = Fencepost(app)

    @fencepost.task(id="report")
    def report() -> None: ...

    def authorize(asked: Any) -> Caller | None:
        assert asked is request
        name = asked.headers.get("X-User")
        return Caller("operate" if name == "ann" else "read", name) if name else None

    outer = Blueprint("admin", __name__)
    outer.register_blueprint(fencepost.blueprint(authorize=authorize), url_prefix="/jobs")
    app.register_blueprint(outer, url_prefix="/admin")
    client, ann, bob = app.test_client(), {"X-User": "ann"}, {"X-User": "bob"}
    assert client.get("/admin/jobs/readyz").json == {"ready": True}
    assert client.get("/admin/jobs/api/v1/status").status_code == 401
    assert client.get("/admin/jobs/api/v1/jobs", headers=bob).get_json()["items"][0]["id"] == "report"
    trigger = "/admin/jobs/api/v1/jobs/report/trigger"
    assert client.post(trigger, headers=bob).status_code == 403
    answer = client.post(trigger, headers=ann)
    assert answer.status_code == 202
    document = client.get("/admin/jobs/api/v1/openapi.json", headers=bob).get_json()
    assert document["servers"] == [{"url": "/admin/jobs"}]
    assert client.get("/admin/jobs/api/v1/fires/f%C3%BCr", headers=bob).status_code == 404
    fencepost.scheduler.stop_in_background()


def test_a_blueprint_needs_the_extension() -> None:
    with pytest.raises(ConfigurationError, match="init_app"):
        Flask("bare").register_blueprint(Fencepost().blueprint())


# --- commands ------------------------------------------------------------------------------------------------------


def test_commands_find_the_applications_scheduler(tmp_path: Path) -> None:
    app = site(FENCEPOST_STORE=f"sqlite:///{tmp_path}/jobs.db")
    fencepost = Fencepost(app)

    @fencepost.job(every(hours=1), id="hourly")
    def hourly() -> None: ...

    runner = app.test_cli_runner()
    nothing = runner.invoke(args=["fencepost", "status"])
    assert nothing.exit_code == 78
    assert "flask fencepost run" in nothing.output
    assert runner.invoke(args=["fencepost", "run", "--seconds", "0.1"]).exit_code == 0
    status = runner.invoke(args=["fencepost", "status", "--json"])
    assert [job["id"] for job in json.loads(status.stdout)["jobs"]] == ["hourly"]
    assert runner.invoke(args=["fencepost", "why", "hourly"]).exit_code in (0, 1)
    assert runner.invoke(args=["fencepost", "preview", "hourly", "--count", "2"]).exit_code == 0
    missing = runner.invoke(args=["fencepost", "why"])
    assert missing.exit_code == 64
    assert "Missing argument 'JOB'" in missing.output
    assert runner.invoke(args=["fencepost", "status", "more"]).exit_code == 64
    assert "flask fencepost" in runner.invoke(args=["fencepost", "--help"]).output
    assert isinstance(fencepost.scheduler, Scheduler)
