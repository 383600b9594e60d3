"""What both views say, in plain words."""

from __future__ import annotations

from datetime import datetime

from fencepost.demo.watch import name_of
from fencepost.model import FireRecord, Reason, State
from fencepost.views.words import last_line, length

INTRO = (
    "{count} processes share one SQLite file and six scheduled jobs: one leads and plans, all run what is due, "
    "each fire once. Watch what happens when the leader is killed in the middle of it."
)
COUNTS = {2: "Two", 3: "Three", 4: "Four", 5: "Five", 6: "Six", 7: "Seven", 8: "Eight", 9: "Nine"}

PAUSED = "mailing"
"""The job that the demo pauses."""
JOBS = {
    "ping": "each second, a coroutine",
    "resize": "every 2 s, blocks a thread",
    "fetch": "every 3 s, fails now and then",
    "backup": "every 2 s, takes 3 s: skipped",
    "minute": "cron: at each full minute",
    "mailing": "every 5 s, but it is paused",
}


def intro(replicas: int) -> str:
    return INTRO.format(count=COUNTS[replicas])


def outcome(fire: FireRecord, now: datetime) -> str:
    """What became of a fire, in a few words."""
    again = f", attempt {fire.attempt}" if fire.attempt > 1 else ""
    if fire.state is State.RUNNING:
        since = f" for {length(now - fire.started_at)}" if fire.started_at and now > fire.started_at else ""
        return f"running{since}{again}"
    if fire.state is State.WAITING:
        return _waiting(fire)
    if fire.state is State.SKIPPED:
        return _skipped(fire)
    if fire.state is State.LOST:
        return f"lost: {name_of(fire.replica)} was killed in mid-run"
    if fire.state is State.SUCCEEDED:
        return f"succeeded{again}"
    reason = f": {fire.reason}" if fire.reason else ""
    return f"{fire.state.value}{reason}{again}"


def late(fire: FireRecord) -> str:
    """From due to the first start."""
    started = fire.attempts[0].started_at if fire.attempts else fire.started_at
    return length(max(started - fire.due_at, started - started)) if started else ""


def took(fire: FireRecord) -> str:
    return length(fire.finished_at - fire.started_at) if fire.finished_at and fire.started_at else ""


def _waiting(fire: FireRecord) -> str:
    if fire.attempts and fire.attempts[-1].outcome == "retry":
        return f"to be retried: {last_line(fire.error)}"
    if fire.attempts and fire.attempts[-1].outcome == "lost":
        return "to be run again: its replica was killed"
    return "to be run on by another"


def _skipped(fire: FireRecord) -> str:
    times = f" ({fire.count} in a row)" if fire.count > 1 else ""
    if fire.reason == Reason.OVERLAP:
        return f"skipped: the run before had not ended{times}"
    return f"skipped: {fire.reason}{times}"
