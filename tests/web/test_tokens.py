"""Named tokens: the file that lists them, what wrong ones meet, and who did what."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
import time
from pathlib import Path

import httpx2
import pytest

from fencepost import ConfigurationError
from fencepost.cli import outcome
from fencepost.model import job_of
from fencepost.web.access import ROLES, Caller, checked_caller, entry_of, new_token, read_tokens
from fencepost.web.app import WebApp
from tests.web.sample import ended, sample, triggered
from tests.web.serving import STARTING, client_of, eventually, served, server_process, service
from tests.web.test_auth import bearer
from tests.web.test_serve import SERVE, settings
from tests.web.test_shutdown import ready


def tokens_file(folder: Path, *callers: Caller) -> tuple[Path, list[str]]:
    tokens = [new_token() for _ in callers]
    path = folder / "tokens.toml"
    path.write_text("\n".join(map(entry_of, callers, tokens)))
    return path, tokens


def test_each_role_may_do_what_those_before_it_may() -> None:
    assert [[Caller(role).may(other) for other in ROLES] for role in ROLES] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


@pytest.mark.parametrize(
    ("patterns", "seen", "hidden"),
    [
        ((), ["a", "billing.run"], []),
        (("billing.*",), ["billing.run", "billing."], ["billing", "abilling.x", "Billing.run"]),
        (("report", "job-?"), ["report", "job-1"], ["report2", "job-12", "xreport"]),
        (("*",), ["a"], []),
    ],
)
def test_patterns_choose_jobs(patterns: tuple[str, ...], seen: list[str], hidden: list[str]) -> None:
    caller = Caller("read", "ada", patterns)
    assert [id for id in (*seen, *hidden) if caller.sees(id)] == seen


def test_the_job_of_a_key() -> None:
    assert job_of("a.b:c@2026-11-15T12:00:00.000000Z") == "a.b:c"
    assert job_of("report!nightly") == "report"


def test_the_command_writes_what_the_service_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tokens.toml"
    tokens = {}
    for name, *options in (
        ("grafana",),
        ("ada@example.org", "--role", "operate", "--jobs", "billing.*", "--jobs", "report"),
    ):
        assert outcome(["token", name, *options]) == 0
        out, err = capsys.readouterr()
        with path.open("a") as file:
            file.write(out)
        [tokens[name]] = [word for word in err.split() if word.startswith("fencepost_")]
        assert tokens[name] not in out
    assert set(read_tokens(str(path)).values()) == {
        Caller("read", "grafana"),
        Caller("operate", "ada@example.org", ("billing.*", "report")),
    }
    with service(sample(tokens_file=str(path))) as client:
        me = client.get("/api/v1/me", headers=bearer(tokens["ada@example.org"])).json()
        assert me == {"name": "ada@example.org", "role": "operate", "jobs": ["billing.*", "report"]}


def test_the_command_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome(["token", "ada", "--role", "admin", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["hash"] in entry_of(checked_caller("ada", "admin"), found["token"])
    assert outcome(["token", "a b"]) == 78
    assert outcome(["token", "ada", "--jobs", "a b"]) == 78


HASH = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[ada", "not valid TOML"),
        ("\xff", "not valid TOML"),
        ("ada = 1", "not a table"),
        (f'[ada]\nrole = "root"\nhash = "{HASH}"', "role must be one of read, operate, admin"),
        (f'[ada]\nhash = "{HASH}"', "role must be one of"),
        ('[ada]\nrole = "read"', "hash must be sha256:"),
        ('[ada]\nrole = "read"\nhash = "my password"', "hash must be sha256:"),
        (f'[ada]\nrole = "read"\nhash = "{HASH}"\njob = "x"', "there is no 'job'; did you mean 'jobs'"),
        (f'[ada]\nrole = "read"\nhash = "{HASH}"\njobs = "report"', "jobs must be a list"),
        (f'[ada]\nrole = "read"\nhash = "{HASH}"\njobs = []', "would see nothing"),
        (f'[ada]\nrole = "read"\nhash = "{HASH}"\njobs = ["a b"]', "matches no job id"),
        (f'["a b"]\nrole = "read"\nhash = "{HASH}"', "cannot name a token"),
        (
            f'[ada]\nrole = "read"\nhash = "{HASH}"\n[bob]\nrole = "read"\nhash = "{HASH}"',
            "ada and bob have the same token",
        ),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_the_remedy(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "tokens.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigurationError, match=problem) as caught:
        sample(tokens_file=str(path)).asgi()
    assert "my password" not in str(caught.value)


def test_a_file_that_everybody_can_write_is_refused(tmp_path: Path) -> None:
    path, _ = tokens_file(tmp_path, Caller("read", "ada"))
    path.chmod(0o666)
    with pytest.raises(ConfigurationError, match="chmod o-w"):
        read_tokens(str(path))
    with pytest.raises(ConfigurationError, match="cannot read"):
        read_tokens(str(tmp_path / "nothing.toml"))


def test_with_an_empty_file_nobody_is_let_in(tmp_path: Path) -> None:
    """Not even from this machine: whoever names a file wants tokens."""
    path, _ = tokens_file(tmp_path)
    with service(sample(tokens_file=str(path))) as client:
        assert client.get("/api/v1/status").status_code == 401


def test_tokens_are_read_again_and_a_broken_file_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, [first] = tokens_file(tmp_path, Caller("read", "ada"))
    scheduler = sample(tokens_file=str(path))
    web = scheduler.asgi()
    with served(web) as url, client_of(url) as client:

        def status(token: str) -> int:
            return client.get("/api/v1/me", headers=bearer(token)).status_code

        assert status(first) == 200
        _, [second] = tokens_file(tmp_path, Caller("read", "bob"))
        assert status(second) == 401
        web.reload()
        assert (status(first), status(second)) == (401, 200)
        path.write_text("[broken")
        web.reload()
        assert (status(first), status(second)) == (401, 200)
    assert "the tokens stay as they were" in caplog.text


def test_a_wrong_token_waits_a_right_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fencepost.web.auth.HELD_BACK", 1.0)
    monkeypatch.setattr("fencepost.web.auth.MOST_HELD_BACK", 2)
    path, [token] = tokens_file(tmp_path, Caller("read", "ada"))
    web = WebApp(sample(tokens_file=str(path)))
    with served(web) as url, client_of(url) as client:
        took: list[float] = []

        def guess() -> None:
            with client_of(url) as other:
                begun = time.monotonic()
                assert other.get("/api/v1/me", headers=bearer("guessed")).status_code == 401
                took.append(time.monotonic() - begun)

        threads = [threading.Thread(target=guess) for _ in range(2)]
        for thread in threads:
            thread.start()
        eventually(lambda: web.doorkeeper._held_back == 2)
        answers = [client.get("/api/v1/me", headers=headers) for headers in (bearer(token), bearer("x"), {})]
        assert [answer.status_code for answer in answers] == [200, 429, 401]
        assert answers[1].headers["retry-after"] == "5"
        assert web.doorkeeper._held_back == 2, "none of these waited"
        for thread in threads:
            thread.join()
        assert min(took) >= 1
    assert "guessed" not in caplog.text


def test_refusals_are_logged_once_a_minute_per_kind(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, [reader, team] = tokens_file(
        tmp_path, Caller("read", "grafana"), Caller("operate", "ada", ("report",))
    )
    with service(sample(tokens_file=str(path))) as client, caplog.at_level(logging.WARNING):
        for _ in range(20):
            client.get("/api/v1/fires/%0aforged", headers=bearer("wrong"))
            client.post("/api/v1/jobs/report/trigger", headers=bearer(reader))
            client.post("/api/v1/jobs/nasty/trigger", headers=bearer(team))
            client.post(
                "/api/v1/jobs/report/trigger", headers={**bearer(team), "Origin": "https://x.example"}
            )
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("refused")]
    assert [line.partition(":")[0] for line in lines] == [
        r"refused 127.0.0.1 GET '/api/v1/fires/\nforged'",
        "refused grafana (read, 127.0.0.1) POST '/api/v1/jobs/report/trigger'",
        "refused ada (operate, 127.0.0.1) POST '/api/v1/jobs/nasty/trigger'",
        "refused ada (operate, 127.0.0.1) POST '/api/v1/jobs/report/trigger'",
    ]


def test_who_did_what_is_in_the_ledger_and_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, [token] = tokens_file(tmp_path, Caller("operate", "ada"))
    with service(sample(tokens_file=str(path))) as client, caplog.at_level(logging.INFO):
        client.headers.update(bearer(token))
        key = triggered(client, "report", idempotency_key="a")
        assert ended(client, key)["asked_by"] == "ada"
        client.post("/api/v1/jobs/report/pause", json={"reason": "audit"})
        held = triggered(client, "hold")
        assert client.post(f"/api/v1/fires/{held}/cancel").json()["cancelled_by"] == "ada"
        history = client.get("/api/v1/jobs/report").json()["history"]
        assert [(event["kind"], event["by"]) for event in history][-1] == ("paused", "ada")
        ended(client, held)
        actions = client.get("/api/v1/history?by=ada").json()
        assert [(each["kind"], each["job_id"], each["fire"]) for each in actions["items"]][::-1] == [
            ("triggered", "report", key),
            ("paused", "report", None),
            ("triggered", "hold", held),
            ("cancelled", "hold", held),
        ]
        assert not actions["more"]
        assert client.get("/api/v1/history?by=bob").json()["items"] == []
        defined = client.get("/api/v1/history?job=nasty").json()["items"]
        assert [each["kind"] for each in defined] == ["defined"]
    said = [
        record.__dict__["fencepost_fields"]
        for record in caplog.records
        if hasattr(record, "fencepost_fields")
    ]
    assert [(each["event"], each["caller"], each["job_id"], each.get("fire")) for each in said] == [
        ("api.trigger", "ada", "report", key),
        ("api.pause", "ada", "report", None),
        ("api.trigger", "ada", "hold", held),
        ("api.cancel", "ada", "hold", held),
    ]
    assert f"ada (operate, 127.0.0.1): trigger {key}" in caplog.text


@pytest.mark.cluster
def test_serve_reads_the_tokens_again_at_sighup(tmp_path: Path) -> None:
    _, [first] = tokens_file(tmp_path, Caller("operate", "ada"))
    file = {"tokens_file": tmp_path / "tokens.toml"}
    command = [*SERVE, "--log-format", "json"]
    with server_process(command, tmp_path, **settings(tmp_path, **file)) as process:
        eventually(lambda: ready(process, ""), STARTING)
        with client_of(process.url) as client:
            assert client.post("/api/v1/jobs/tick/pause", headers=bearer(first)).status_code == 200
            _, [second] = tokens_file(tmp_path, Caller("read", "bob"))
            os.kill(process.popen.pid, signal.SIGHUP)

            def admits(token: str) -> bool:
                answer: httpx2.Response = client.get("/api/v1/me", headers=bearer(token))
                return answer.status_code == 200

            eventually(lambda: admits(second), STARTING)
            assert not admits(first)
        process.terminate()
        assert process.ended() == 0
    lines = [json.loads(line) for line in process.told().splitlines()]
    [line] = [line for line in lines if line.get("event") == "api.pause"]
    assert (line["caller"], line["role"], line["client"], line["job_id"]) == (
        "ada",
        "operate",
        "127.0.0.1",
        "tick",
    )
    assert first not in process.told()
