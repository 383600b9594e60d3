"""Real processes: a pipeline killed in its third phase goes on there on another one, and at every moment the status
document says what is true."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from fencepost.pipeline.status import read_status
from tests.cluster.harness import Cluster
from tests.execution.places import url_of

pytestmark = pytest.mark.cluster

FIVE = Path(__file__).parent / "apps" / "five.py"
TTL, HEARTBEAT = 2.0, 0.5
PHASES = ["one", "two", "three", "four", "five"]
PROVEN = 1.0
"""Seconds until a death is seen where it can be proven."""


@dataclass(frozen=True)
class Mark:
    what: str
    phase: str
    token: int
    pid: int
    at: float


@dataclass(frozen=True)
class Poll:
    """A status document, and the stretch of time in which it was read."""

    begun: float
    ended: float
    says: dict


class Story:
    """What the phases wrote, and what the status said meanwhile."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.polls = []

    def poll_until(self, condition, seconds, what):
        """Every 50 ms."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}; {self.polls[-1].says}"
            begun = time.time()
            says = self.cluster.reader.ask(lambda store: read_status(store, "five"))
            self.polls.append(Poll(begun, time.time(), says))
            time.sleep(max(0.0, 0.05 - (time.time() - begun)))

    @property
    def marks(self):
        if not self.cluster.log.exists():
            return []
        words = [line.split() for line in self.cluster.log.read_text().splitlines()]
        return [
            Mark(what, phase, int(token), int(pid), float(at)) for what, phase, _, token, pid, at in words
        ]

    def begun(self, phase, times=1):
        return [mark for mark in self.marks if (mark.what, mark.phase) == ("start", phase)][times - 1 :]

    def during(self, begin, end):
        return [poll for poll in self.polls if poll.begun >= begin and poll.ended <= end]


def started_with_their_job(cluster, number=1):
    started = cluster.start(number, FIVE)
    cluster.wait_for(
        lambda: cluster.reader.ask(lambda store: store.jobs(["five"])), 15, "the job is declared"
    )
    return started


@pytest.mark.parametrize("place", ["sqlite", "file", "valkey", "postgres"])
def test_it_resumes_in_its_third_phase_on_another_process(place, tmp_path, request):
    url = url_of(place, tmp_path, request)
    with Cluster(url, tmp_path, leader_ttl=TTL, run_ttl=TTL, heartbeat=HEARTBEAT) as cluster:
        story = Story(cluster)
        first, second = started_with_their_job(cluster, 2)
        before = cluster.reader.ask(lambda store: read_status(store, "five"))
        assert (before["status"], before["data_updated_at"]) == ("idle", None)
        assert before["next_run_at"] is not None
        key = cluster.trigger("five")
        story.poll_until(lambda: story.begun("three"), 15, "the third phase begins")
        [third] = story.begun("three")
        story.poll_until(
            lambda: len(story.during(third.at, time.time())) >= 5, 15, "a few looks while it blocks"
        )
        killed = next(process for process in (first, second) if process.pid == third.pid)
        cluster.kill(killed)
        dead_since = time.time()
        story.poll_until(lambda: cluster.reader.fire(key).state.final, 15, "the run ends")
        story.poll_until(lambda: story.polls[-1].says["status"] != "running", 5, "the end is seen")
        fire = cluster.reader.fire(key)
        record = cluster.reader.ask(lambda store: store.jobs(["five"]))[0]

    # Phases one and two are not repeated; three is, elsewhere, with a higher token.
    started = [(mark.phase, mark.token, mark.pid) for mark in story.marks if mark.what == "start"]
    other = next(process.pid for process in (first, second) if process is not killed)
    one, again = third.token, fire.token
    assert again > one
    assert started == [
        ("one", one, killed.pid),
        ("two", one, killed.pid),
        ("three", one, killed.pid),
        ("three", again, other),
        ("four", again, other),
        ("five", again, other),
    ]
    assert fire.state == "succeeded"
    assert [attempt.outcome for attempt in fire.attempts] == ["lost", "succeeded"]
    history = fire.progress["pipeline"]["phases"]
    assert [(each["name"], each["outcome"]) for each in history] == [(name, "done") for name in PHASES]
    assert fire.checkpoint["results"]["one"] == {"by": killed.pid}
    assert fire.checkpoint["results"]["three"] == {"by": other}

    # The status was right whenever it was looked at.
    resumed = story.begun("three", times=2)[0]
    ended = {(mark.phase, mark.token): mark.at for mark in story.marks if mark.what == "end"}
    for poll in story.during(0, ended["two", one]):
        assert poll.says["blocking_maintenance"] is False
        assert poll.says["maintenance_started_at"] is None
    blocked = [
        *story.during(third.at, dead_since - 0.05),
        *story.during(resumed.at, ended["three", again]),
    ]
    assert len(blocked) >= 3
    for poll in blocked:
        assert (poll.says["status"], poll.says["phase"]) == ("running", "three")
        assert poll.says["blocking_maintenance"] is True
        assert poll.says["maintenance_started_at"] is not None
        assert poll.says["eta_seconds"] == 5
    lifted_by = PROVEN if place in ("sqlite", "file") else TTL + 1.0
    between = story.during(dead_since + lifted_by, fire.started_at.timestamp())
    first_lifted = next(
        poll.ended
        for poll in story.polls
        if poll.begun > dead_since and not poll.says["blocking_maintenance"]
    )
    lifted, again_after = first_lifted - dead_since, resumed.at - dead_since
    print(
        f"{place}: the overlay lifted {lifted:.2f} s after the kill, the run resumed after {again_after:.2f} s"
    )
    assert first_lifted - dead_since <= lifted_by
    for poll in between:
        assert poll.says["blocking_maintenance"] is False
        assert poll.says["status"] == "running"
    # Also while nobody runs it, and before the second attempt reports.
    for poll in story.during(third.at, ended["five", again]):
        assert poll.says["refresh_scope_tables_rewritten"] == ["a", "b"], poll.says
    for poll in story.during(story.begun("four")[0].at, ended["five", again]):
        assert poll.says["blocking_maintenance"] is False
    for poll in story.polls[:-1]:
        assert poll.says["run_id"] in (key, None)
        assert poll.says["data_updated_at"] is None or poll.says["status"] == "idle"
        assert poll.says["next_run_at"] == before["next_run_at"]
    final = story.polls[-1].says
    assert (final["status"], final["phase"], final["last_error"]) == ("idle", "idle", None)
    assert final["data_updated_at"] == final["last_success_at"] == record.kept["data_updated_at"]
    assert final["refresh_scope_tables_rewritten"] == ["a", "b"]


def test_without_anybody_left_the_overlay_lifts_all_the_same(tmp_path):
    """Nobody is there to settle the run. The page must not be covered for ever."""
    url = f"sqlite:///{tmp_path}/fencepost.db"
    with Cluster(url, tmp_path, leader_ttl=TTL, run_ttl=TTL, heartbeat=HEARTBEAT) as cluster:
        story = Story(cluster)
        [only] = started_with_their_job(cluster)
        cluster.trigger("five")
        story.poll_until(
            lambda: story.polls and story.polls[-1].says["blocking_maintenance"], 15, "it blocks"
        )
        cluster.kill(only)
        story.poll_until(lambda: not story.polls[-1].says["blocking_maintenance"], 1, "the overlay lifts")
        says = story.polls[-1].says
        assert (says["status"], says["last_error"]) == ("failed", "its replica died in mid-run")
        cluster.start(1, FIVE)
        story.poll_until(lambda: story.polls[-1].says["status"] == "idle", 15, "somebody new ends it")


def test_a_rolling_restart_goes_on_where_it_was(tmp_path):
    url = f"sqlite:///{tmp_path}/fencepost.db"
    settings = {
        "leader_ttl": TTL,
        "run_ttl": TTL,
        "heartbeat": HEARTBEAT,
        "drain_timeout": 0.2,
        "ready_delay": 0,
    }
    with Cluster(url, tmp_path, **settings) as cluster:
        story = Story(cluster)
        [first] = started_with_their_job(cluster)
        key = cluster.trigger("five")
        story.poll_until(lambda: story.begun("three"), 15, "the third phase begins")
        [second] = cluster.start(1, FIVE)
        assert cluster.terminate(first) == 0
        # Given back is no failed attempt: the number stays, and the phase waits until somebody ends it.
        story.poll_until(lambda: len(story.begun("three")) == 2, 15, "it goes on elsewhere")
        fire = cluster.reader.fire(key)
        assert [attempt.outcome for attempt in fire.attempts] == ["given back"]
        started = [(mark.phase, mark.pid) for mark in story.marks if mark.what == "start"]
        expected = [(name, first.pid) for name in ("one", "two", "three")]
        assert started == [*expected, ("three", second.pid)]
