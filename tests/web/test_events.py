"""Live events: what changes, on whichever process, from where a stream broke off."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from fencepost import Scheduler, every
from fencepost.web import feed, sse
from fencepost.web import listener as listening_module
from fencepost.web.app import WebApp
from fencepost.web.listener import StreamEvent, StreamListener
from tests.web.sample import ended, sample, triggered
from tests.web.serving import PATIENCE, QUICK, client_of, eventually, served, service


class Stream:
    def __init__(self, response: httpx2.Response) -> None:
        self._lines = response.iter_lines()
        self.last_id = ""

    def next(self) -> tuple[str, Any]:
        """The next event, whatever its kind."""
        kind, data = "", None
        for line in self._lines:
            if line.startswith("id: "):
                self.last_id = line.removeprefix("id: ")
            elif line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                data = json.loads(line.removeprefix("data: "))
            elif line.startswith(":"):
                return "comment", None
            elif not line and kind:
                return kind, data
        raise AssertionError("the stream has ended")

    def fire(self, key: str, *states: str) -> dict[str, Any]:
        """The fire as first told in one of these states."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            kind, data = self.next()
            if kind == "fire" and data["key"] == key and data["state"] in states:
                found: dict[str, Any] = data
                return found
        raise AssertionError(f"{key} was never told as {states}")


@contextmanager
def listening(client: httpx2.Client, last_id: str | None = None, **query: Any) -> Iterator[Stream]:
    headers = {"Last-Event-ID": last_id} if last_id else {}
    with client.stream("GET", "/api/v1/events", params=query, headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        yield Stream(response)


def test_a_run_is_told_as_it_goes(client: httpx2.Client) -> None:
    with listening(client) as stream:
        assert stream.next()[0] == "hello"
        key = triggered(client, "hold")
        assert stream.fire(key, "running")["replica"]
        client.post(f"/api/v1/fires/{key}/cancel")
        assert stream.fire(key, "cancelled")["reason"] == "on request"


def test_any_process_tells_what_happens_on_another(tmp_path: object) -> None:
    store = f"sqlite:///{tmp_path}/jobs.db"
    with service(sample(store), replica=False) as watching, listening(watching) as stream:
        assert stream.next()[0] == "hello"
        with service(sample(store)) as busy:
            key = triggered(busy, "report")
            assert stream.fire(key, "succeeded")["token"] == 1


def test_replicas_and_leadership_are_told(tmp_path: object) -> None:
    store = f"sqlite:///{tmp_path}/jobs.db"
    with (
        service(sample(store), replica=False) as watching,
        listening(watching, kinds="replica,leader") as stream,
    ):
        stream.next()
        with service(sample(store)):
            told = {stream.next()[0] for _ in range(2)}
        assert told == {"replica", "leader"}


def test_a_stream_goes_on_where_it_broke_off(client: httpx2.Client) -> None:
    with listening(client) as stream:
        stream.next()
        first = triggered(client, "report")
        stream.fire(first, "succeeded")
        seen = stream.last_id
    missed = triggered(client, "report")
    ended(client, missed)
    with listening(client, last_id=seen) as stream:
        kind, data = stream.next()
        assert (kind, data["key"]) == ("fire", missed)


def test_what_cannot_be_placed_means_read_everything_anew(client: httpx2.Client) -> None:
    for last_id in ("2020-01-01T00:00:00.000000Z~1", "nonsense", "2999-01-01T00:00:00.000000Z~1"):
        with listening(client, last_id=last_id) as stream:
            assert stream.next()[0] == "reset"


def test_an_id_of_another_process_is_placed_by_the_stores_time(
    client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "OVERLAP", timedelta(seconds=0.05))
    with listening(client) as stream:
        stream.next()
        key = triggered(client, "report")
        stream.fire(key, "succeeded")
        later = triggered(client, "report")
        stream.fire(later, "succeeded")
        other = f"{stream.last_id.partition('~')[0]}~77"
    with listening(client, last_id=other) as stream:
        assert stream.fire(later, "succeeded")


def test_only_one_job_if_asked_for(client: httpx2.Client) -> None:
    with listening(client, job="report") as stream:
        stream.next()
        ended(client, triggered(client, "nasty"))
        key = triggered(client, "report")
        kind, data = stream.next()
        assert (kind, data["key"]) == ("fire", key)


def test_several_jobs_if_asked_for(client: httpx2.Client) -> None:
    with listening(client, job=["report", "nasty"]) as stream:
        stream.next()
        held = triggered(client, "hold")
        keys = [triggered(client, "nasty"), triggered(client, "report")]
        for key in keys:
            kind, data = stream.next()
            while (kind, data["key"]) != ("fire", key):
                assert data["key"] != held
                kind, data = stream.next()


def test_changes_of_jobs_are_told_whichever_process_made_them(tmp_path: object) -> None:
    store = f"sqlite:///{tmp_path}/jobs.db"
    with (
        service(sample(store)) as acting,
        service(sample(store), replica=False) as watching,
        listening(watching, kinds="job") as stream,
    ):
        assert stream.next()[0] == "hello"
        acting.post("/api/v1/jobs/report/pause", json={"reason": "deploy"})
        kind, data = stream.next()
        assert (kind, data["job_id"], data["kind"], data["note"]) == ("job", "report", "paused", "deploy")
        acting.post("/api/v1/jobs/report/resume")
        assert stream.next()[1]["kind"] == "resumed"


def test_new_and_removed_jobs_are_told() -> None:
    scheduler = sample()
    with service(scheduler) as client, listening(client, kinds="job") as stream:
        stream.next()
        scheduler.sync.add("nasty", every(hours=1), id="added")
        kind, data = stream.next()
        assert (kind, data["job_id"], data["kind"]) == ("job", "added", "defined")
        scheduler.sync.remove("added")
        assert stream.next()[1]["kind"] == "removed"


def test_only_some_kinds_if_asked_for(client: httpx2.Client) -> None:
    with listening(client, kinds="job,store") as stream:
        stream.next()
        ended(client, triggered(client, "report"))
        client.post("/api/v1/jobs/report/pause", json={})
        assert stream.next()[0] == "job"
    for wrong in ("fires", "fire,", ""):
        answer = client.get("/api/v1/events", params={"kinds": wrong})
        assert answer.status_code == 422
        assert "'fire', 'job', 'replica'" in answer.json()["detail"]


def test_a_silent_stream_shows_that_it_lives(client: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "HEARTBEAT_SECONDS", 0.1)
    with listening(client) as stream:
        stream.next()
        last_id = stream.last_id
        kind, data = stream.next()
        assert kind == "beat"
        assert datetime.fromisoformat(data["now"]).year >= 2026
        assert stream.last_id == last_id, "a stream that breaks off must go on after the last change"
    with listening(client, kinds="fire") as stream:
        stream.next()
        assert stream.next()[0] == "comment"


def test_the_number_of_streams_is_bounded(client: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MOST_STREAMS", 1)
    with listening(client) as stream:
        stream.next()
        assert client.get("/api/v1/events").status_code == 503


def test_asking_only_for_headers_opens_no_stream(client: httpx2.Client) -> None:
    answer = client.head("/api/v1/events")
    assert (answer.status_code, answer.content) == (200, b"")


def test_more_changes_than_one_look_takes_mean_read_anew(
    client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "MOST_ROWS", 2)
    with listening(client) as stream:
        stream.next()
        for _ in range(3):
            triggered(client, "report")
        deadline = time.monotonic() + PATIENCE
        while stream.next()[0] != "reset":
            assert time.monotonic() < deadline


AT = datetime(2026, 1, 1, tzinfo=UTC)


def taken(listener: StreamListener) -> list[str]:
    async def take() -> list[str]:
        found = []
        while text := await listener.take(0.01):
            found.append(text)
        return found

    return asyncio.run(take())


def told(number: int, subject: str | None = None, **data: str) -> StreamEvent:
    return StreamEvent(str(number), "fire", data, AT, "report", subject)


def test_a_listener_that_falls_behind_is_told_to_read_anew_once() -> None:
    listener = StreamListener()
    for number in range(3 * listening_module.WAITING + 5):
        listener.put(told(number))
    text = "".join(taken(listener))
    assert text.count("event: reset") == 1
    assert "event: reset" in text[:30]
    assert f"id: {3 * listening_module.WAITING + 4}\n" in text


def test_of_each_fire_a_slow_listener_gets_the_latest_state() -> None:
    listener = StreamListener()
    for number in range(5 * listening_module.WAITING):
        listener.put(told(number, subject=f"report@{number % 2}"))
    [text] = taken(listener)
    assert text.count("event: ") == 2
    assert f"id: {5 * listening_module.WAITING - 1}\n" in text


def test_what_is_sent_at_once_is_bounded() -> None:
    listener = StreamListener()
    for number in range(10):
        listener.put(told(number, text="x" * 10_000))
    assert [text.count("event: ") for text in taken(listener)] == [1] * 10


@pytest.mark.slow
def test_100_fires_a_second_are_told_without_a_reset() -> None:
    scheduler = Scheduler("memory://", **{**QUICK, "slots": 100})
    for number in range(100):

        @scheduler.job(every(seconds=1), id=f"tick{number}")
        async def tick() -> None: ...

    seen, succeeded = Counter[str](), set[str]()
    with service(scheduler) as client, listening(client) as stream:
        until = time.monotonic() + 15
        while time.monotonic() < until:
            kind, data = stream.next()
            seen[kind] += 1
            if kind == "fire" and data["state"] == "succeeded":
                succeeded.add(data["key"])
        assert not seen["reset"], seen
        assert len(succeeded) > 700, seen


def test_a_short_run_is_looked_at_once_and_without_listeners_only_each_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each look takes a part of a core from those who run jobs."""
    looks = 0
    real = feed._glance

    async def counted(*args: Any) -> feed.Glance:
        nonlocal looks
        looks += 1
        return await real(*args)

    monkeypatch.setattr(feed, "_glance", counted)
    monkeypatch.setattr(feed, "POLL_EVERY", 60.0)
    monkeypatch.setattr(feed, "GATHER", 0.5, raising=False)
    web = WebApp(sample())
    with served(web) as url, client_of(url) as client:
        with listening(client) as stream:
            assert stream.next()[0] == "hello"
            key = triggered(client, "report")
            before = looks
            stream.fire(key, "succeeded")
            assert looks == before + 1
        eventually(lambda: web.feed.listeners == 0)
        ended(client, triggered(client, "report"))
        time.sleep(1.0)
        assert looks == before + 1
