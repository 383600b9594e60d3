"""Why a fire ran or did not: found in the calendar, the job's history and the ledger.

First the calendar then in force says which fire was meant, then the ledger says what became of it. Only what
the calendar owed and the ledger does not have is unaccounted for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import takewhile

from fencepost.insight.chains import in_words, parents_then, trace_of
from fencepost.insight.limits import waits_for
from fencepost.insight.lookup import latest_fire, no_such_job
from fencepost.insight.sentences import Scene, never, not_decided, not_due, of_fire
from fencepost.insight.views.shapes import Shape, fire_shape, time
from fencepost.insight.views.times import EXACT, AskedTime, asked
from fencepost.insight.views.words import when
from fencepost.insight.visible import UNSEEN, VisibleStore
from fencepost.model import FireRecord, JobEvent, JobRecord, State
from fencepost.model.periods import DefinitionPeriod, periods_of
from fencepost.model.triggers import Trigger, iso, zone
from fencepost.model.triggers.following import After, parents_of
from fencepost.store.base import FireQuery, Roster

SEARCH_BACK = (timedelta(minutes=1), timedelta(hours=1), timedelta(days=1), timedelta(days=32))
SEARCH_FAR_BACK = (timedelta(days=366), timedelta(days=366 * 10))
MOST_ROWS = 100


@dataclass(frozen=True)
class Answer:
    """What became of a fire. `str(answer)` is the whole of it in words."""

    job_id: str
    asked: datetime
    """The moment asked for; without one, the due time of the latest fire, or now if there is none."""
    zone: str | None
    """The zone it was read in; None: it named its own offset, or no moment was given."""
    verdict: str
    """The fire's state, or: not due, not decided, not in the calendar, left out, no schedule, before its time, removed,
    forgotten, unaccounted."""
    text: str
    """What became of it."""
    subject: str = ""
    """Which fire is meant."""
    due_at: datetime | None = None
    fire: FireRecord | None = None
    other: FireRecord | None = None
    """The fire that its reason names."""
    before: datetime | None = None
    after: datetime | None = None
    """The nearest fires of the calendar, where none was due at the moment asked for."""

    def __str__(self) -> str:
        return f"{self.subject} {self.text}"


def answer_shape(found: Answer) -> Shape:
    return {
        "job_id": found.job_id,
        "asked": iso(found.asked),
        "zone": found.zone,
        "due_at": time(found.due_at),
        "verdict": found.verdict,
        "answer": f"{found.subject} {found.text}",
        "fire": fire_shape(found.fire) if found.fire else None,
        "refers_to": fire_shape(found.other) if found.other else None,
        "before": time(found.before),
        "after": time(found.after),
    }


@dataclass(frozen=True)
class Case:
    """Everything that is read before the answer is worked out."""

    job_id: str
    roster: Roster
    record: JobRecord | None
    history: Sequence[JobEvent]
    retention: timedelta

    @property
    def periods(self) -> list[DefinitionPeriod]:
        return periods_of(self.history)

    def due_in(self, start: datetime, width: timedelta) -> datetime | None:
        """The first fire the calendars owed in this stretch."""
        for period in self.periods:
            if period.trigger is None:
                continue
            due = period.trigger.next_after(max(start - EXACT, period.since))
            if due is not None and due < start + width and (period.until is None or due <= period.until):
                return due
        return None


async def answer(store: VisibleStore, job_id: str, at: str | datetime | None, retention: timedelta) -> Answer:
    """`at`: `03:00`, an ISO time, a moment; None: the latest fire."""
    case = await _case(store, job_id, retention)
    if at is None:
        return await _latest(store, case)
    periods = case.periods
    if isinstance(at, datetime):
        question = AskedTime((at.astimezone(UTC),), timedelta(seconds=1), None)
    else:
        question = asked(at, case.roster.now, zone(_zone_of(periods[-1].trigger if periods else None)))
    start, due = _meant(case, question)
    if due is None:
        found = await _around(store, case, start, question)
    else:
        found = await _account(store, case, start, due)
        if more := case.due_in(due + EXACT, start + question.width - due - EXACT):
            hint = f"More were due just after it: ask for {more:%Y-%m-%dT%H:%M:%S}Z to hear of the next."
            found = replace(found, text=f"{found.text} {hint}")
    return replace(found, zone=question.zone, subject=_subject(case, found, question))


async def _case(store: VisibleStore, job_id: str, retention: timedelta) -> Case:
    roster = await store.roster()
    dead = (await store.evidence([replica.id for replica in roster.replicas])).dead
    roster = replace(roster, overdue=roster.overdue | dead)
    records, history = await store.jobs([job_id]), await store.history(job_id)
    if not records and not history:
        raise await no_such_job(store, job_id)
    return Case(job_id, roster, records[0] if records else None, history, retention)


async def _latest(store: VisibleStore, case: Case) -> Answer:
    """What became of the newest fire that is due; if there is none, when the first one comes."""
    scene, now = Scene(case.roster, case.record, case.history), case.roster.now
    fire = await latest_fire(store, case.job_id)
    if fire is not None:
        found = await _answer_of(
            store, scene, Answer(case.job_id, fire.due_at, None, "", "", due_at=fire.due_at), fire
        )
    else:
        after = case.record.next_run_after(now) if case.record else None
        verdict = "not due" if after else "no schedule" if case.record else "removed"
        found = Answer(case.job_id, now, None, verdict, never(scene, after), after=after)
    return replace(found, subject=_subject(case, found, AskedTime((), EXACT, None)))


def _meant(case: Case, question: AskedTime) -> tuple[datetime, datetime | None]:
    """Of the instants a wall time may stand for, the one that has a fire."""
    for start in question.instants:
        if due := case.due_in(start, question.width):
            return start, due
    return question.instants[0], None


async def _account(store: VisibleStore, case: Case, start: datetime, due: datetime) -> Answer:
    """A fire was due then: what does the ledger say?"""
    scene = Scene(case.roster, case.record, case.history)
    rows = await store.find_fires(
        FireQuery(job_id=case.job_id, since=due, until=due + EXACT, limit=MOST_ROWS)
    )
    covering = [fire for fire in rows if fire.scheduled]
    blank = Answer(case.job_id, start, None, "", "", due_at=due)
    for fire in sorted(covering, key=lambda fire: fire.due_at != due):
        return await _answer_of(store, scene, blank, fire)
    if due > case.roster.now:
        return replace(blank, verdict="not due", text=not_due(scene, due))
    if case.record is not None and any(s.cursor < due for s in case.record.segments):
        return replace(blank, verdict="not decided", text=not_decided(scene))
    if due < case.roster.now - case.retention:
        kept = f"it was due before what the ledger keeps ({case.retention.days} days), and is forgotten."
        return replace(blank, verdict="forgotten", text=f"The ledger has no row for it: {kept}")
    lost = "The ledger has no row for it, and should have: this is a fault. `fencepost audit` lists all such."
    return replace(blank, verdict="unaccounted", text=lost)


async def _answer_of(store: VisibleStore, scene: Scene, blank: Answer, fire: FireRecord) -> Answer:
    others = await store.find_fires(FireQuery(key=fire.refers_to)) if fire.refers_to else ()
    other = others[0] if others else None
    text, verdict = of_fire(scene, fire, other, blank.due_at), fire.state.value
    if fire.state is State.PENDING:
        verdict = "not due" if fire.due_at > scene.roster.now else "not decided"
    if scene.record is not None and scene.record.held_back is not None and _may_wait(scene, fire):
        text = await waits_for(store, scene.record.held_back.limit)
    text += await _chain(store, scene.record, fire)
    return replace(blank, verdict=verdict, text=text, fire=fire, other=other)


async def _chain(store: VisibleStore, record: JobRecord | None, fire: FireRecord) -> str:
    """The fires of the jobs before and after it that belong to it."""
    links = await trace_of(store, record, fire) if record is not None else []
    chain = f" It is part of a chain: {in_words(links)}." if links else ""
    hidden = record is not None and UNSEEN in parents_of(record.job.trigger)
    return f"{chain} It follows {UNSEEN}." if hidden and _follows(fire) else chain


def _follows(fire: FireRecord) -> bool:
    return fire.scheduled or fire.by.startswith("after ")


def _may_wait(scene: Scene, fire: FireRecord) -> bool:
    """Whether it is this fire that its job's limit holds back."""
    manual = fire.state is State.PENDING and not fire.scheduled
    return fire.due_at <= scene.roster.now and (fire.state in (State.QUEUED, State.WAITING) or manual)


async def _around(store: VisibleStore, case: Case, start: datetime, question: AskedTime) -> Answer:
    """No calendar owed a fire then. There may be rows all the same: manual ones, or of a pruned history."""
    blank = Answer(case.job_id, start, None, "", "")
    query = FireQuery(job_id=case.job_id, since=start, until=start + question.width, limit=MOST_ROWS)
    rows = [fire for fire in await store.find_fires(query) if fire.due_at >= start]
    if rows:
        scene = Scene(case.roster, case.record, case.history)
        fire = min(rows, key=lambda fire: (not fire.scheduled, fire.due_at))
        return await _answer_of(store, scene, replace(blank, due_at=fire.due_at), fire)
    period = next((each for each in reversed(case.periods) if each.since <= start), None)
    if period is None:
        return replace(blank, verdict="before its time", text=_too_early(case))
    if period.until is not None and period.until < start:
        event = period.ended_by
        by = f" by {event.by}" if event and event.by else ""
        return replace(blank, verdict="removed", text=f"The job was removed at {when(period.until)}{by}.")
    if isinstance(period.trigger, After):
        parents, waits = await parents_then(store, period.trigger, start, question.width)
        verdict = "not decided" if waits else "not in the calendar"
        begin = "It has no fire yet" if waits else "Nothing was due then"
        return replace(blank, verdict=verdict, text=f"{begin}: it follows {parents}.")
    if period.trigger is None:
        return replace(blank, verdict="no schedule", text="The job has no schedule: it runs when triggered.")
    return _off_calendar(blank, period, period.trigger, start, question.width)


def _off_calendar(
    blank: Answer, period: DefinitionPeriod, trigger: Trigger, start: datetime, width: timedelta
) -> Answer:
    left = next(trigger.left_out(max(start - EXACT, period.since), start + width - EXACT), None)
    before = _last_before(trigger, start, period.since)
    after = trigger.next_after(start)
    if after and period.until and after > period.until:
        after = None
    nearest = " and ".join(
        [
            *([f"the one before at {when(before)}"] if before else []),
            *([f"the one after at {when(after)}"] if after else []),
        ]
    )
    text = "Nothing was due then: its" if left is None else f"Nothing was due then, {left}. Its"
    text += f" schedule is {trigger.describe()}"
    text += f", with {nearest}." if nearest else ", which has no fires near."
    verdict = "not in the calendar" if left is None else "left out"
    return replace(blank, verdict=verdict, text=text, before=before, after=after)


def _too_early(case: Case) -> str:
    first = case.history[0].at if case.history else None
    if case.record is not None and first is not None and case.record.created_at < first:
        return f"The job's history before {when(first)} is forgotten."
    return f"The job did not exist then: it was first stored at {when(first)}."


def _last_before(trigger: Trigger, moment: datetime, since: datetime) -> datetime | None:
    """Triggers only run forward, so start from further and further back until a fire is found."""

    def fires_from(start: datetime) -> Iterator[datetime]:
        return takewhile(lambda fire: fire < moment, trigger.after(max(start, since)))

    for span in (*SEARCH_BACK, *SEARCH_FAR_BACK):
        last = None
        for fire in fires_from(moment - span):
            last = fire
        if last is not None or moment - span <= since:
            return last
    return None


def _zone_of(trigger: Trigger | None) -> str:
    return (trigger.local_zone if trigger else None) or "UTC"


def _subject(case: Case, found: Answer, question: AskedTime) -> str:
    """Which moment was meant; a time of day has many."""
    moment = found.due_at or found.asked
    local = ""
    if question.zone not in (None, "UTC"):
        local = f", {moment.astimezone(zone(question.zone or 'UTC')):%H:%M:%S} in {question.zone}"
    if found.due_at is None:
        return f"{case.job_id} at {when(moment)}{local}:"
    kind = "manual fire" if found.fire is not None and not found.fire.scheduled else "fire"
    return f"{case.job_id}, the {kind} of {when(moment)}{local}:"
