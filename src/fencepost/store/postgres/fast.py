"""The steps that are whole on the server: what is asked as parameters, what is answered as values.

None, or what is left over, says that the general path is needed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from fencepost.clock import Moment
from fencepost.model import FireRecord, Reason, State, changed, error_line, fire_key
from fencepost.store.base import (
    Claim,
    Claimed,
    ClaimRequest,
    GiveBack,
    HeartbeatReply,
    HeartbeatRequest,
    Held,
    Plan,
    Report,
    Roster,
    Settle,
    Suspect,
    Swept,
    Upcoming,
    Update,
    Updated,
)
from fencepost.store.codec import micros, moment, ticks, when
from fencepost.store.postgres.arrays import columns
from fencepost.store.postgres.connection import Connection
from fencepost.store.postgres.find import UNKNOWN
from fencepost.store.postgres.load import KnownTargets, PostgresLoad, targets_of
from fencepost.store.postgres.records import LEASE_COLUMNS, REPLICA_COLUMNS, lease_of, place_of
from fencepost.store.rows import ORPHANED_AFTER
from fencepost.store.rules import presence
from fencepost.store.rules.notify_rules import RULES
from fencepost.store.texts import job_of, text
from fencepost.store.unit_of_work import UnitOfWork
from fencepost.store.unreadable import UnreadableRows

CONTENDED = 0.01
"""Seconds after which to ask again for jobs that another replica had locked."""

Now = tuple[int | None, float | None]
"""The wall and steady time that a test has set; else the server reads its own clock."""


# --- claims -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FastClaims:
    claimed: Claimed
    order: tuple[str, ...] = ()
    """If the general path must go on: the jobs that were considered, in the order of their turn."""
    returned: tuple[GiveBack, ...] = ()
    """Claims of jobs that cannot be read here, which only showed when they were made."""


# What is ahead is asked for beside the function that claims, which replicas of earlier versions call as well. It
# depends on that function's reply, so it is evaluated after it, and sees what was claimed.
_CLAIM = """
select plain, wall, steps, job_ids, dues, tokens, definitions, to_json(closed)::text, candidates, more, soonest,
    contended, moments, leader_only
from {schema}.claim(%s, %s, %s, %s, %s, %s, %s, %s) c left join lateral {schema}.upcoming(
    %s, coalesce((select l.holder = %s and l.term = %s from {schema}.lease l), false), array[]::text[],
    case when c.plain and c.more is null and c.soonest > c.wall then nullif(%s, 0) end) a on true
"""


def claim(db: Connection, request: ClaimRequest, now: Now, unreadable: UnreadableRows) -> FastClaims | None:
    who = request.replica, request.number, request.room, request.term, request.incarnation, request.server
    asked = *who, *now, request.replica, request.replica, request.term, request.ahead
    is_fast, wall, steps, job_ids, dues, tokens, definitions, closings, *rest = db.call(_CLAIM, *asked)
    if not is_fast:
        return None
    start = moment(wall)
    claims: list[Claim] = []
    returned: list[GiveBack] = []
    if job_ids:
        begun = FireRecord("", "", start, state=State.RUNNING, replica=request.replica, attempt=1)
        begun = changed(begun, claim_no=request.number, started_at=start)
        for job_id, ticks, token, definition in zip(job_ids, dues, tokens, definitions, strict=True):
            due = moment(ticks)
            fire = changed(begun, key=fire_key(job_id, due), job_id=job_id, due_at=due, token=token)
            job = None
            if not unreadable.holding(job_id):
                job = unreadable.read("job", job_id, job_of, definition, job_id=job_id, holds=True)
            if job is not None and (job.trigger is None or job.trigger.foreign is None):
                claims.append(Claim(fire, job))
            else:
                returned.append(GiveBack(fire.key, token))
    rows = json.loads(closings or "[]")
    closed = tuple(_closed(closing, start) for closing in rows)
    now_closed = {fire.key: row["place"] for fire, row in zip(closed, rows, strict=True)}
    candidates, more, soonest, contended, moments, leader_only = rest
    if more and (len(claims) < request.room or not request.room):
        claimed = Claimed(tuple(claims), closed, steps=steps, closed_now=now_closed)
        return FastClaims(claimed, tuple(candidates), tuple(returned))
    wake_in = 0.0 if more else None if soonest is None else max(0.0, (soonest - wall) / 1e6)
    ahead: tuple[Upcoming, ...] = ()
    if moments and not contended and moments[0] > wall:
        ahead = tuple(Upcoming(moment(at), only) for at, only in zip(moments, leader_only, strict=True))
        wake_in = (moments[0] - wall) / 1e6
    claimed = Claimed(tuple(claims), closed, CONTENDED if contended else wake_in, steps, now_closed, ahead)
    return FastClaims(claimed, returned=tuple(returned))


def _closed(closing: Mapping[str, Any], now: datetime) -> FireRecord:
    job_id, first, number = closing["job_id"], moment(closing["first"]), closing["number"]
    return FireRecord(
        fire_key(job_id, first),
        job_id,
        first,
        state=State.MISSED if closing["late"] else State.SKIPPED,
        reason=Reason.COALESCED if closing["late"] else Reason.OVERLAP,
        refers_to=fire_key(job_id, moment(closing["claimed"])),
        count=number,
        last_due_at=moment(closing["last"]) if number > 1 else None,
        finished_at=now,
    )


def together(fast: FastClaims, rest: Claimed) -> Claimed:
    """With what the general path has added."""
    turns = {job_id: turn for turn, job_id in enumerate(fast.order)}

    def turn(fire: FireRecord) -> int:
        return turns.get(fire.job_id, len(turns))

    claims = sorted((*fast.claimed.claims, *rest.claims), key=lambda claim: turn(claim.fire))
    closed = sorted((*fast.claimed.closed, *rest.closed), key=turn)
    now = {**fast.claimed.closed_now, **rest.closed_now}
    return Claimed(tuple(claims), tuple(closed), rest.wake_in, fast.claimed.steps, now, rest.ahead)


# --- updates ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FastUpdates:
    updated: Updated
    rest: tuple[int, ...] = ()
    """Places of the updates that need the general path."""

    @property
    def counted(self) -> bool:
        return any(self.updated.accepted)


# When something will be due is read beside the function: what it settles changes nothing for its job.
_SETTLE = f"""
select settled, reported, steps, case when (select not r.draining from {{schema}}.replicas r where r.id = %s)
    then {{schema}}.soonest(%s, (select l.holder from {{schema}}.lease l) = %s, array[]::text[]) end,
    coalesce(%s, {{schema}}.wall())
from {{schema}}.settle({", ".join(["%s"] * 18)})
"""


def settle(db: Connection, replica: str, updates: Sequence[Update], now: Now) -> FastUpdates:
    times = Counter(update.key for update in updates)
    has_rules = any(isinstance(each, Settle) and each.state is State.FAILED for each in updates) and (
        db.one("select 1 from {schema}.entries where key = %s", RULES) is not None
    )
    ends: dict[int, tuple[Any, ...]] = {}
    reports: dict[int, tuple[Any, ...]] = {}
    for number, update in enumerate(updates):
        place = place_of(update.key) if times[update.key] == 1 else None
        if place is None:
            continue
        if isinstance(update, Settle):
            notified_of = has_rules and update.state is State.FAILED
            if place.due_at is not None and update.keep is None and update.result is None and not notified_of:
                outcome = (
                    update.state.value,
                    update.reason,
                    update.error,
                    update.output,
                    error_line(update.error),
                )
                ends[number] = (place.job_id, place.due_at, update.token, *outcome)
        elif isinstance(update, Report) and update.trace is None:
            progress = None if update.progress is None else text(update.progress)
            checkpoint = None if update.checkpoint is None else text(update.checkpoint)
            reports[number] = (*place, update.token, progress, checkpoint, int(update.saves), update.output)
    if not ends and not reports:
        return FastUpdates(Updated((False,) * len(updates)), tuple(range(len(updates))))
    ended, reporting = columns(ends.values(), "tbbttttt"), columns(reports.values(), "tbtbttbt")
    asked = replica, replica, replica, now[0], replica, *ended, *reporting, now[0]
    settled, reported, steps, soonest, wall = db.call(_SETTLE, *asked)
    wake_in = None if soonest is None else max(0.0, (soonest - wall) / 1e6)
    accepted = _numbers(ends, settled) | _numbers(reports, reported)
    rest = tuple(n for n in range(len(updates)) if n not in accepted and n not in reports)
    answers = tuple(n in accepted for n in range(len(updates)))
    return FastUpdates(Updated(answers, wake_in, steps or 0, when(soonest)), rest)


def _numbers(asked: dict[int, Any], places: Sequence[int] | None) -> set[int]:
    """The server counts from one, and counts only what it was asked."""
    numbers = list(asked)
    return {numbers[place - 1] for place in places or ()}


# --- plans ------------------------------------------------------------------------------------------------------

_PLAN = "select {schema}.plan(%s, %s, %s, %s, %s, %s, %s, %s, %s)"


def plan(db: Connection, plans: Sequence[Plan], now: Now) -> list[bool]:
    """Whether each was written; one that was not needs the general path."""
    times = Counter(plan.job_id for plan in plans)
    asked: dict[int, tuple[Any, ...]] = {}
    rows: list[tuple[int, int]] = []
    for number, plan in enumerate(plans):
        if times[plan.job_id] > 1 or plan.next_at is None or any(row.count > 1 for row in plan.rows):
            continue
        last = plan.rows[-1].last if plan.rows else plan.cursor
        asked[number] = (
            plan.job_id,
            plan.version,
            micros(plan.cursor),
            ticks(plan.until),
            micros(last),
            micros(plan.next_at),
        )
        rows += [(len(asked), micros(row.first)) for row in plan.rows]
    if not asked:
        return [False] * len(plans)
    (places,) = db.call(_PLAN, *columns(asked.values(), "tbbbbb"), *columns(rows, "bb"), now[0])
    written = _numbers(asked, places)
    return [number in written for number in range(len(plans))]


# --- presence ---------------------------------------------------------------------------------------------------

_HEARTBEAT = (
    f"select plain, wall, steps, {', '.join(f'(b.lease).{name}' for name in LEASE_COLUMNS.split(', '))},"
    f" job_ids, dues, names, tokens, claim_nos, cancels, present.* from {{schema}}.beat({', '.join(['%s'] * 14)}) b,"
    " (select array_agg(r.id order by r.id), array_agg(r.targets_no order by r.id), array_agg(r.claim_no > 0"
    " and not r.draining and r.expires > coalesce(%s, {schema}.wall() / 1e6) order by r.id) from {schema}.replicas r)"
    " present"
)


def heartbeat(
    db: Connection, request: HeartbeatRequest, now: Now, unreadable: UnreadableRows, known: KnownTargets
) -> HeartbeatReply | None:
    if request.joining or request.draining or request.targets is not None or request.lingering is not None:
        return None
    campaign, seen = request.campaign, request.seen
    watched = campaign.watched if campaign else None
    is_fast, wall, steps, *rest = db.call(
        _HEARTBEAT,
        request.replica,
        request.number,
        request.ttl,
        request.heartbeat,
        campaign.ttl if campaign else None,
        watched.term if watched else None,
        watched.renewals if watched else None,
        (float("inf") if watched.gone else watched.seconds) if watched else None,
        seen.incarnation,
        seen.server,
        seen.term,
        seen.steps,
        *now,
        now[1],
    )
    if not is_fast:
        return None
    *rest, ids, numbers, are_able = rest
    lease, (job_ids, *held) = unreadable.read("lease", "leader", lease_of, rest[:-6]), rest[-6:]
    if lease is None:
        return None
    claims = [
        Held(f"{job_id}!{name}" if name else fire_key(job_id, moment(due)), token, claim_no, cancel)
        for job_id, due, name, token, claim_no, cancel in zip(
            job_ids or (), *(each or () for each in held), strict=True
        )
    ]
    targets = targets_of(db, dict(zip(ids, numbers, strict=True)), known)
    peers = [id for id, able in zip(ids, are_able, strict=True) if able and id != request.replica]
    mine = targets.get(request.replica)
    return HeartbeatReply(
        moment(wall), True, lease, tuple(claims), steps, tuple(id for id in peers if targets[id] == mine)
    )


# Without a lock: one statement sees one state. The lease is in every row; without a replica there is still one.
_ROSTER = f"""
select now.wall, (select exists (select 1 from {{schema}}.targets t
        where not t.orphaned and (t.unknown_since is null or t.unknown_since <= now.wall - %s) and {UNKNOWN})
    or exists (select 1 from {{schema}}.entries where key >= 'owed/' and key < 'owed0')),
    {", ".join(f"l.{name}" for name in LEASE_COLUMNS.split(", "))},
    {", ".join(f"r.{name}" for name in REPLICA_COLUMNS.split(", "))}, r.targets_no
from (select coalesce(%s, {{schema}}.wall()) as wall) now
cross join {{schema}}.lease l left join {{schema}}.replicas r on true order by r.id
"""
_ABOUT_LEASE = 2 + len(LEASE_COLUMNS.split(", "))


def roster(db: Connection, now: Now, rows: UnitOfWork) -> Roster:
    return _presence(db, now, rows)[1]


def sweep(
    db: Connection, by: str, term: int, suspects: Sequence[Suspect], now: Now, rows: UnitOfWork
) -> tuple[Swept | None] | None:
    """A sweep that finds nothing to do only reads. None: there is something to do."""
    at, roster, to_do = _presence(db, now, rows)
    if (roster.leader.holder, roster.leader.term) != (by, term):
        return (None,)
    replicas = {replica.id: replica for replica in roster.replicas}
    dead = [
        each
        for each in suspects
        if each.replica in replicas and presence.is_dead(at, replicas[each.replica], each)
    ]
    return None if dead or to_do else (Swept(roster),)


def _presence(db: Connection, now: Now, rows: UnitOfWork) -> tuple[Moment, Roster, bool]:
    found = db.all(_ROSTER, ORPHANED_AFTER // timedelta(microseconds=1), now[0])
    wall, to_do, *lease = found[0][:_ABOUT_LEASE]
    rows.at = at = Moment(moment(wall), wall / 1e6 if now[1] is None else now[1])
    present = [row[_ABOUT_LEASE:] for row in found if row[_ABOUT_LEASE] is not None]
    load = rows.backend.load
    assert isinstance(load, PostgresLoad)
    load.use_presence(lease, present)
    return at, presence.roster(rows, at), to_do
