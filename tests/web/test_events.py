"""Live events: what changes, on whichever process, from where a stream broke off."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from fencepost.web import feed, sse
from tests.web.sample import ended, sample, triggered
from tests.web.serving import PATIENCE, service


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
def listening(client: httpx2.Client, job: str | None = None, last_id: str | None = None) -> Iterator[Stream]:
    query = {"job": job} if job else {}
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
    with service(sample(store), replica=False) as watching, listening(watching) as stream:
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
    monkeypatch.setattr(feed, "OVERLAP", timedelta(seconds=0.2))
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


def test_a_silent_stream_shows_that_it_lives(client: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "HEARTBEAT", 0.1)
    with listening(client) as stream:
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


def test_a_listener_that_falls_behind_is_told_to_read_anew() -> None:
    listener = feed.Listener(None)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(feed.WAITING + 1):
        listener.put(feed.Told(str(number), "fire", {}, at, "report"))
    kinds = [listener.queue.get_nowait().kind for _ in range(2)]  # type: ignore[union-attr]
    assert kinds == ["reset", "fire"]
    assert listener.queue.empty()
