"""The jobs: which of them do not run, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from fencepost.insight.audit.job import PATIENCE
from fencepost.insight.doctor.finding import Finding, ok, problem, the_first, warning
from fencepost.insight.doctor.target import OTHER_NAMESPACE
from fencepost.insight.limits import limits_of
from fencepost.insight.views.shapes import Shape
from fencepost.insight.views.standing import described, place_of
from fencepost.insight.views.words import when
from fencepost.model import FireRecord, JobRecord, State
from fencepost.model.limits import amount
from fencepost.model.triggers.following import parents_of
from fencepost.settings import did_you_mean
from fencepost.store.base import FireQuery, Store

IN_A_ROW = 3
MOST_FIRES = 1_000

DECIDE = "a replica that is up and knows the task decides it: see what is said of the cluster"
ALL_JOBS = "`fencepost jobs` lists them"


async def undecided(store: Store, now: datetime) -> Sequence[FireRecord]:
    """Fires that are due and not decided: the newest."""
    found = await store.find_fires(FireQuery(states=(State.PENDING,), until=now, limit=MOST_FIRES))
    return [fire for fire in found if fire.backfill is None]  # those wait for their turn


async def abandoned(store: Store) -> Sequence[FireRecord]:
    """Runs of replicas that are not on record. A replica that joined or left meanwhile is none of them."""
    running = FireQuery(states=(State.RUNNING,), limit=MOST_FIRES)
    found = [fire for fire in await store.find_fires(running) if fire.remote is None]
    present = {replica.id for replica in (await store.roster()).replicas}
    lonely = [fire for fire in found if fire.replica not in present]
    still = {(fire.key, fire.token) for fire in await store.find_fires(running)} if lonely else set()
    return [fire for fire in lonely if (fire.key, fire.token) in still]


def jobs(
    status: Shape,
    records: Sequence[JobRecord],
    due: Sequence[FireRecord],
    abandoned: Sequence[FireRecord],
    now: datetime,
) -> Iterator[Finding]:
    """`status`: an overview. `due`: fires not decided."""
    if not records:
        yield warning("none are stored", "they are when a replica that declares some starts")
        return
    yield ok(f"{len(records)} stored" if len(records) > 1 else "1 stored")
    yield from the_first(_disputed(status["jobs"]), ALL_JOBS)
    yield from the_first(_made_by_hand(status["jobs"]), ALL_JOBS)
    yield from the_first(_orphaned(status["jobs"]), ALL_JOBS)
    yield from the_first(_paused(status["jobs"]), ALL_JOBS)
    held = {job["id"] for job in status["jobs"] if job["orphaned"] or job["paused"]}
    expected = {record.id: record for record in records if record.id not in held}
    yield from the_first(_overdue(due, expected, now), "`fencepost audit` lists them")
    yield from the_first(_behind(expected, now), "`fencepost audit` lists them")
    yield from the_first(_abandoned(abandoned), "`fencepost fires --state running` lists them")
    yield from the_first(_without_parent(records), ALL_JOBS)
    yield from the_first(_differing(records), "`fencepost limits` lists them")
    yield from the_first(_failing(records), "`fencepost fires --state failed` lists them")


def _disputed(shapes: Sequence[Shape]) -> Iterator[Finding]:
    for job in shapes:
        if others := job["conflicts"]:
            who = f"{others[0]['replica']} from {place_of(others[0]['origin'])}" + (
                f" and {len(others) - 1} more" if len(others) > 1 else ""
            )
            what = (
                f"{job['id']} is declared by two applications: from {place_of(job['origin'])}, and by {who}"
            )
            yield problem(
                f"{what}; they share its fires, and only the first one's schedule holds", OTHER_NAMESPACE
            )


def _made_by_hand(shapes: Sequence[Shape]) -> Iterator[Finding]:
    for job in shapes:
        if "by hand" in job["states"]:
            place = place_of(job["origin"])
            what = f"{job['id']} was made by hand, and that holds: the code in {place} is not followed"
            remedy = (
                f"put it into the code; or go back to the code: `fencepost jobs rm {job['id']}`, and restart"
            )
            yield warning(what, remedy)


def _orphaned(shapes: Sequence[Shape]) -> Iterator[Finding]:
    for job in shapes:
        if job["orphaned"]:
            where = "" if job["pool"] == "default" else f" with --pool {job['pool']}"
            remedy = f"start a replica{where} that declares {job['task']}, or `fencepost jobs rm {job['id']}`"
            yield warning(f"{job['id']} is {described('orphaned', job)}; its fires are missed", remedy)


def _paused(shapes: Sequence[Shape]) -> Iterator[Finding]:
    for job in shapes:
        if job["paused"]:
            what = f"{job['id']} is {described('paused', job)}; its fires are skipped"
            yield warning(what, f"`fencepost resume {job['id']}`, unless that is meant")


def _overdue(
    due: Sequence[FireRecord], expected: Mapping[str, JobRecord], now: datetime
) -> Iterator[Finding]:
    """Fires that the audit reports as overdue."""
    fires = defaultdict(list)
    for fire in due:
        record = expected.get(fire.job_id)
        if record is not None and fire.due_at <= _decided_by(record, now):
            fires[fire.job_id].append(fire)
    for id, late in sorted(fires.items()):
        number, oldest = sum(fire.count for fire in late), min(fire.due_at for fire in late)
        counted = "1 fire" if number == 1 else f"{number} fires"
        yield problem(f"{id}: {counted} due since {when(oldest)}, and decided by no replica", DECIDE)


def _behind(expected: Mapping[str, JobRecord], now: datetime) -> Iterator[Finding]:
    for id, record in sorted(expected.items()):
        if record.behind_at(_decided_by(record, now)):
            what = f"{id}: its calendar is planned up to {when(record.segments[0].cursor)} only"
            yield problem(what, "the leader plans it: see what is said of the cluster")


def _abandoned(runs: Sequence[FireRecord]) -> Iterator[Finding]:
    for fire in runs:
        what = f"{fire.key} runs on {fire.replica}, which is not on record: nobody will end it"
        yield problem(
            what, f"make sure that its process is gone; then `fencepost cancel '{fire.key}' --owner-is-dead`"
        )


def _decided_by(record: JobRecord, now: datetime) -> datetime:
    """What was due by then should have been decided."""
    return now - max(record.job.decided_within, PATIENCE)


def _without_parent(records: Sequence[JobRecord]) -> Iterator[Finding]:
    stored = {record.id for record in records}
    for record in records:
        for parent in parents_of(record.job.trigger):
            if parent not in stored:
                what = f"{record.id} follows {parent}, which is not stored: until it is, {record.id} does not run"
                yield warning(what, f"declare {parent}, or name another job{did_you_mean(parent, stored)}")


def _differing(records: Sequence[JobRecord]) -> Iterator[Finding]:
    for standing in limits_of(records, ()):
        kinds = {limit.per_seconds is None for _, limit in standing.members}
        if len(standing.sizes) > len(kinds):
            declared = ", ".join(
                f"{id} {amount(limit.size, limit.per_seconds)}" for id, limit in standing.members[:5]
            )
            what = (
                f"limit {standing.name} is declared with different sizes ({declared}); {standing.holds} holds"
            )
            yield warning(what, "declare it with one size, in one place")


def _failing(records: Sequence[JobRecord]) -> Iterator[Finding]:
    for record in sorted(records, key=lambda record: record.id):
        last, times = record.last_run, record.failures_in_a_row
        if last is not None and times >= IN_A_ROW:
            why = last.error_line or last.reason or last.state.value
            fate = "was lost" if last.state is State.LOST else last.state.value
            what = f"{record.id} {fate} the last {times} times: {why}"
            yield problem(what, f"`fencepost show '{last.key}'` has the error and the output")
