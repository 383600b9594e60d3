"""Guarded APScheduler applications for a while, as they are used; the leading worker is killed on the way."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from functools import partial

from soak.cluster import StreamEvent
from soak.places import Place

from tests.cluster.harness import Fault, Verdict
from tests.guard.running import APPS, Application

RATE = 20
PERIOD = 10
"""Seconds. No job is due again before a run of its that was cut off is settled."""
LEAD_IN = 20.0
"""Seconds in which all workers start: each of them imports a web framework."""


def guarded(
    start: Callable[[Application], None], processes: int, where: Place, seconds: float
) -> StreamEvent:
    begin = int(time.time() + LEAD_IN)
    load = {"JOBS": str(RATE * PERIOD), "PERIOD": str(PERIOD), "BEGIN": str(begin)}
    with Application(where.folder, where.url, load, reader_url=where.direct) as application:
        start(application)
        application.all_here(processes)
        yield f"{processes} processes, {RATE} fires/s, {seconds:.0f} s"
        time.sleep(max(0.0, begin - time.time()) + seconds / 2)
        killed = application.kill_one()
        yield f"kill -9 of the leader, {killed.pid}"
        time.sleep(seconds / 2)
        application.settled()
        application.stop()
        verdict = judged(application, killed)
        yield str(verdict)
        yield verdict


under_uvicorn = partial(guarded, lambda it: it.under_uvicorn(4, ("--factory", f"{APPS}.load:asgi")), 4)
under_gunicorn = partial(guarded, lambda it: it.under_gunicorn(4, f"{APPS}.load:wsgi()"), 4)
as_service = partial(guarded, lambda it: it.as_service(3, f"{APPS}.load"), 3)


def judged(application: Application, killed: Fault) -> Verdict:
    """An assertion fails if a fire is doubled, or unaccounted for; the rest is for the table."""
    report = application.judged(killed)
    verdict = Verdict(due=report.expected - report.pending)
    for state, count in report.states.items():
        verdict.states[state.value] += count
    verdict.lost_in_faults = ["a run of the killed process"] * verdict.states["lost"]
    for note in application.notes():
        lateness = note.wall - datetime.fromisoformat(note.key.rpartition("@")[2]).timestamp()
        if lateness > max(verdict.lateness, default=0.0):
            verdict.latest = note.key
        verdict.lateness.append(lateness)
    return verdict
