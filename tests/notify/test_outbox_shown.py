"""The outbox in commands, API, metrics and doctor: a receiver that answers with an error for ever, and a retry."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from fencepost import Scheduler, every
from fencepost.notify import failed, webhook
from tests.notify.receivers import Receiver, Reply, running
from tests.web.serving import eventually, service

SECRET = "s" * 32


def command(store: str, *words: str) -> tuple[int, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "fencepost", *words, "--store", store, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, json.loads(done.stdout)


def channels(client: httpx2.Client) -> dict[str, Any]:
    return {each["name"]: each for each in client.get("/api/v1/notifications").json()["channels"]}


def is_watched(scheduler: Scheduler) -> bool:
    """The leader has given the job its rule: from then on it holds."""
    (record,) = scheduler.ask_blocking(scheduler.lifecycle.with_store(lambda store: store.jobs()))
    return bool(record.watch)


@pytest.mark.slow
def test_what_waits_and_what_was_set_aside_is_shown(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/jobs.db"
    hooks = Receiver()
    hooks.answer = lambda _: Reply(500)
    with running(hooks):
        scheduler = Scheduler(store, heartbeat="1s", leader_ttl="3s", run_ttl="3s")
        address = f"http://127.0.0.1:{hooks.port}/hook"
        scheduler.notify(webhook(address, secret=SECRET, name="hook"), on=failed)

        @scheduler.job(every(hours=1), id="report")
        def report() -> None:
            raise ValueError("no rows")

        with service(scheduler) as client:
            eventually(lambda: scheduler.replica is not None and scheduler.replica.term() is not None)
            eventually(lambda: is_watched(scheduler))
            client.post("/api/v1/jobs/report/trigger")
            hook = eventually(lambda: (got := channels(client).get("hook", {})).get("error") and got)
            assert hook["waiting"] == 1
            [item] = client.get("/api/v1/notifications").json()["items"]
            assert (item["cause"], item["job_id"], item["channel"]) == ("failed", "report", "hook")
            assert 'fencepost_outbox_waiting{channel="hook"} 1.0' in client.get("/metrics").text

            code, found = command(store, "doctor")
            said = json.dumps(found)
            assert code == 1
            assert "channel hook has failed since" in said
            assert SECRET not in said

            hooks.answer = lambda _: Reply(422)  # refused for good
            eventually(lambda: channels(client)["hook"]["set_aside"] == 1)
            _, listed = command(store, "notify", "list", "--aside")
            assert [each["id"] for each in listed["items"]] == [item["id"]]
            hooks.answer = lambda _: Reply(200)
            assert command(store, "notify", "retry", "hook") == (0, {"channel": "hook", "retry": 1})
            eventually(
                lambda: channels(client)["hook"]["set_aside"] + channels(client)["hook"]["waiting"] == 0
            )
    assert {request.json["id"] for request in hooks.requests} == {item["id"]}


def test_nothing_is_shown_where_there_is_no_rule(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/jobs.db"
    asyncio.run(Scheduler(store).store.open())
    assert command(store, "notify", "list") == (0, {"items": [], "channels": []})
