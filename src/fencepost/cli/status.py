"""`fencepost status`: who leads, who takes part, how each job stands."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import click
from rich.table import Table

from fencepost.cli.output import console, distance, emit, facts, narrow, roughly, say, table, table_of, when
from fencepost.cli.source import CommandSource, json_option, takes
from fencepost.cli.views import not_both, shown, tz_option, watch_option
from fencepost.insight.lookup import shortened
from fencepost.insight.views.overview import read_overview
from fencepost.insight.views.shapes import Shape
from fencepost.insight.views.standing import described, job_state
from fencepost.model.jobs import DEFAULT_POOL
from fencepost.model.triggers import from_iso


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
    source = CommandSource.of(words, (), url, namespace)

    def read() -> tuple[Shape, datetime]:
        return source.ask(lambda store: read_overview(store, source.scheduler.store_name))

    if as_json:
        emit(read()[0])
    else:
        shown(read, lambda found: print_status(*found), watch)


def print_status(found: Shape, now: datetime) -> None:
    facts([("store", found["store"]), ("leader", _leader(found["leader"])), ("time", when(now))])
    say("")
    if found["replicas"]:
        console().print(replica_table(found["replicas"], now))
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


def replica_table(replicas: Iterable[Shape], now: datetime) -> Table:
    replicas = list(replicas)
    columns: tuple[str, ...] = NARROW_REPLICA_COLUMNS if narrow() else REPLICA_COLUMNS
    if any(replica["pools"] != [DEFAULT_POOL] for replica in replicas):
        columns += ("pools",)
    return table_of(columns, ([_replica_cells(each, now)[name] for name in columns] for each in replicas))


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
    pools = ", ".join(replica["pools"])
    shown = {
        "state": state,
        "pools": pools,
        "last heard": heard,
        "joined": joined,
        "running": len(replica["running"]),
    }
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


def _last(last: Shape | None, now: datetime) -> str:
    if last is None:
        return ""
    reason = f": {last['reason']}" if last["reason"] else ""
    return f"{last['state']}{reason} ({distance(_ended(last), now)})"
