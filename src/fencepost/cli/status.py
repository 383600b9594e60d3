"""`fencepost status`: who leads, who takes part, how each job stands."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import click

from fencepost.cli.output import distance, emit, facts, narrow, roughly, say, table, when
from fencepost.cli.source import Source, json_option, takes
from fencepost.cli.views import not_both, shown, tz_option, watch_option
from fencepost.insight.lookup import shortened
from fencepost.model import State
from fencepost.store.base import FireQuery, Store
from fencepost.triggers import EARLIEST, from_iso
from fencepost.views.overview import overview
from fencepost.views.shapes import Shape


@click.command()
@takes()
@tz_option
@watch_option
@json_option
def status(
    words: tuple[str, ...], url: str | None, namespace: str | None, watch: bool, as_json: bool
) -> None:
    """Show the leader, the replicas and the jobs."""
    not_both(watch, as_json)
    source = Source.of(words, (), url, namespace)

    def look() -> tuple[Shape, datetime]:
        return source.ask(lambda store: look_at_all(store, source.scheduler.store_name))

    if as_json:
        emit(look()[0])
    else:
        shown(look, lambda found: print_status(*found), watch)


def print_status(found: Shape, now: datetime) -> None:
    facts([("store", found["store"]), ("leader", _leader(found["leader"])), ("time", when(now))])
    say("")
    if found["replicas"]:
        columns = NARROW_REPLICA_COLUMNS if narrow() else REPLICA_COLUMNS
        table(columns, ([_replica_cells(each, now)[name] for name in columns] for each in found["replicas"]))
    else:
        say("no replica takes part: nothing runs until one starts")
    for replica in found["replicas"]:
        for key in replica["lingering"]:
            say(f"{key} goes on in a thread of {replica['replica']}, although its run has ended")
    say("")
    job_table(found["jobs"], now)
    for row in found["unreadable"]:
        say(f"unreadable: {row['kind']} {row['key']}{_of_job(row)}: {row['why']}; {row['remedy']}")


def _of_job(row: Shape) -> str:
    return f" of job {row['job_id']}" if row["job_id"] not in (None, row["key"]) else ""


FINAL = tuple(state for state in State if state.final)
RECENT = 1000
"""Fires that ended and are read, so that those that cannot be are told of."""


async def look_at_all(store: Store, name: str) -> tuple[Shape, datetime]:
    """An overview, for which also what is rarely read has been read, so that it shows what cannot be."""
    await store.history_since(EARLIEST)
    await store.find_fires(FireQuery(states=FINAL, limit=RECENT))
    return await overview(store, name)


def job_table(jobs: Iterable[Shape], now: datetime) -> None:
    jobs = list(jobs)
    if not jobs:
        say("no jobs yet: they are stored when a replica that declares them starts")
        return
    if narrow():
        table(NARROW_JOB_COLUMNS, (_narrow_job_row(job, now) for job in jobs))
    else:
        table(JOB_COLUMNS, (_job_row(job, now) for job in jobs))


REPLICA_COLUMNS = ("replica", "state", "last heard", "host", "pid", "joined", "running", "version")
NARROW_REPLICA_COLUMNS = ("replica", "state", "last heard", "joined", "running")
JOB_COLUMNS = ("job", "state", "schedule", "last", "next")
NARROW_JOB_COLUMNS = ("job", "state", "last", "next", "schedule")
NARROW_NAME = 22


def _leader(leader: Shape | None) -> str:
    if leader is None:
        return "none"
    late = "" if leader["state"] == "alive" else f", {leader['state']}"
    return f"{leader['replica']} (term {leader['term']}{late})"


def _replica_cells(replica: Shape, now: datetime) -> Shape:
    state = f"{replica['state']}, leads" if replica["leader"] else replica["state"]
    joined = distance(from_iso(replica["joined_at"]), now)
    heard = distance(from_iso(replica["renewed_at"]), now)
    shown = {"state": state, "last heard": heard, "joined": joined, "running": len(replica["running"])}
    return {**replica, **shown}


def _job_row(job: Shape, now: datetime) -> tuple[Any, ...]:
    next_at = _next(job)
    return (
        job["id"],
        job_state(job),
        job["schedule"] or "when triggered",
        _last(job["last"], now),
        f"{when(next_at)} ({distance(next_at, now)})" if next_at else "",
    )


def _narrow_job_row(job: Shape, now: datetime) -> tuple[Any, ...]:
    """For 80 columns. `jobs show` has the rest."""
    last = job["last"]
    return (
        shortened(job["id"], NARROW_NAME),
        ", ".join(described(state, job) if state == "running" else state for state in job["states"]),
        f"{last['state']} {roughly(_ended(last), now)}" if last else "",
        roughly(_next(job), now),
        job["schedule"] or "by hand",
    )


def _next(job: Shape) -> datetime | None:
    return from_iso(job["next_run_at"]) if job["next_run_at"] else None


def _ended(last: Shape) -> datetime:
    return from_iso(last["finished_at"] or last["due_at"])


def job_state(job: Shape) -> str:
    """In words: `paused until … by …: migrating`, `running, but its replica is dead`."""
    return ", ".join(map(described, job["states"], [job] * len(job["states"])))


def described(state: str, job: Shape) -> str:
    if state == "paused":
        pause = job["paused"]
        until = f" until {when(from_iso(pause['until']))}" if pause["until"] else ""
        by = f" by {pause['by']}" if pause["by"] else ""
        reason = f": {pause['reason']}" if pause["reason"] else ""
        return f"paused{until}{by}{reason}"
    if state == "orphaned":
        since = f" since {when(from_iso(job['orphaned_since']))}" if job["orphaned_since"] else ""
        return f"orphaned: no live replica knows its task{since}"
    if state == "conflict":
        other = job["conflicts"][0]
        return f"conflict: {other['replica']} declares it from {told(other['origin'])}"
    if state == "by hand":
        return f"made by hand, in place of the code in {told(job['origin'])}"
    if state == "running":
        standings = {run["replica_state"] for run in job["active"] if run["state"] == "running"}
        bad = [name for name in ("dead", "gone", "overdue") if name in standings]
        return f"running, but its replica is {bad[0]}" if bad else "running"
    return state


def told(origin: Shape | None) -> str:
    return origin["told"] if origin else "an unknown place"


def _last(last: Shape | None, now: datetime) -> str:
    if last is None:
        return ""
    reason = f": {last['reason']}" if last["reason"] else ""
    return f"{last['state']}{reason} ({distance(_ended(last), now)})"
