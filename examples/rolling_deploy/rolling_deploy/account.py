"""What became of everything, read from the database when all instances have ended."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import psycopg

from fencepost.insight.audit import Kind, audit
from fencepost.model import State
from fencepost.store.base import FireQuery
from fencepost.store.urls import store_from_url

MOST_FIRES = 50_000
COUNT = {
    "ticks": "select count(*) from ticks",
    "doubled_ticks": "select count(*) - count(distinct fire) from ticks",
    "messages": "select count(*) from messages",
    "doubled_messages": "select count(*) - count(distinct (action_id, due_at)) from messages",
    "lost_messages": "select count(*) from runs r where not exists"
    " (select from messages m where m.action_id = r.action_id and m.due_at = r.due_at)",
    "steps": "select count(*) from steps",
    "doubled_steps": "select count(*) - count(distinct (fire, step)) from steps",
    "handed_over": "select count(*) from (select fire from steps group by fire having count(distinct pid) > 1) x",
}


@dataclass(frozen=True)
class Account:
    fires: int
    """That were due, by the calendar."""
    succeeded: int
    lost_fires: int
    """Due, and not run to their end: in whatever state but succeeded, or in no row at all."""
    doubled_fires: int
    """By the ledger: in two rows, or claimed again before the run before had ended."""
    findings: int
    """Of the audit: these two, and whatever else can be wrong."""
    ticks: int
    lost_ticks: int
    """Fires that succeeded without what they are for."""
    doubled_ticks: int
    messages: int
    lost_messages: int
    doubled_messages: int
    steps: int
    doubled_steps: int
    handed_over: int
    """Exports begun on one instance and ended on another."""
    fates: tuple[str, ...]
    """What became of those that are not among the succeeded, for people."""

    @property
    def clean(self) -> bool:
        names = [each.name for each in fields(self) if each.name.startswith(("lost", "doubled", "findings"))]
        return not any(getattr(self, name) for name in names)


async def reckon(url: str) -> Account:
    counted = await _count(url)
    store = store_from_url(url)
    await store.open()
    try:
        report = await audit(store)
        fires = await store.find_fires(FireQuery(until=report.now, limit=MOST_FIRES))
    finally:
        await store.close()
    waiting = {State.PENDING, State.WAITING, State.QUEUED}  # due when nobody was left to run them
    ended = [fire for fire in fires if fire.state not in waiting]
    succeeded = [fire for fire in ended if fire.state is State.SUCCEEDED]
    return Account(
        fires=report.expected,
        succeeded=len(succeeded),
        lost_fires=sum(fire.count for fire in ended) - len(succeeded) + report.found[Kind.UNACCOUNTED],
        doubled_fires=report.found[Kind.DOUBLED],
        findings=report.found.total(),
        lost_ticks=sum(fire.job_id == "tick" for fire in succeeded)
        - counted["ticks"]
        + counted["doubled_ticks"],
        fates=tuple(
            f"{fire.key} {fire.state}: {fire.why}" for fire in ended if fire.state is not State.SUCCEEDED
        ),
        **counted,
    )


async def _count(url: str) -> dict[str, Any]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        found = {}
        for name, query in COUNT.items():
            row = await (await connection.execute(query.encode())).fetchone()
            found[name] = row[0] if row else 0
        return found
