"""Rows that cannot be read are set aside one by one, so that all others go on.

Every store decodes its rows through `UnreadableRows.read`. A row that cannot be decoded is noted there, by kind and
key, and left where it is. A job is *set aside* while its definition, its state or one of its live fires is among them:
nothing of it is planned, claimed or changed, so that no fire of it can run twice
(docs/decisions/0029-unreadable-rows.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

from fencepost.clock import Moment
from fencepost.errors import FencepostError, StoreCorrupt
from fencepost.model import Era, FireRecord, JobRecord, Lease, ReplicaRecord, State, changed

T = TypeVar("T")

Kind = Literal["job", "fire", "target", "event", "replica", "lease"]

DAMAGE = (
    FencepostError,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    RecursionError,
)
"""What decoding a row may raise, whatever is in it."""

MOST_KEPT = 1_000
"""Rows noted at once: a store in which nothing can be read must not fill the memory."""

UNKNOWN_TTL, UNKNOWN_HEARTBEAT = 180.0, 60.0
"""Of a presence that cannot be read: longer than usual, because a replica that lives must not be declared dead."""


class RowUnreadable(StoreCorrupt):
    """What is asked for needs a row that cannot be read. Only this job is concerned."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """One row that cannot be read here."""

    kind: Kind
    key: str
    why: str
    job_id: str | None = None
    """The job that it belongs to."""
    holds: bool = False
    """Whether the job is set aside because of it."""
    foreign: bool = False
    """The row is sound, but names a time zone or a type of trigger that is not known here: hosts that know it go on."""

    @property
    def remedy(self) -> str:
        if self.foreign:
            return "hosts that know it go on; upgrade this one (pip install -U tzdata fencepost) to take part"
        if self.holds:
            return (
                f"restore the row from a backup, or `fencepost jobs rm {self.job_id}` and start a replica "
                "that declares it"
            )
        if self.kind in ("replica", "lease", "target"):
            return "nothing: it is written anew by the replicas"
        return "nothing: the job goes on, and the row is forgotten after the retention"

    @property
    def summary(self) -> str:
        """In one line, without the remedy."""
        what = {"lease": "the leader's lease"}.get(self.kind, f"{self.kind} {self.key}")
        job = f" of job {self.job_id}" if self.job_id and self.job_id != self.key else ""
        return f"{what}{job} cannot be read here: {self.why}"


class UnreadableRows:
    """What this process has found in its store and could not read. Written and read by several threads."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Unreadable] = {}
        self._seen: set[tuple[str, str]] = set()
        """Noted since the last `check`."""

    def __bool__(self) -> bool:
        return bool(self._rows)

    @property
    def rows(self) -> list[Unreadable]:
        return sorted(list(self._rows.values()), key=lambda row: (row.job_id or "", row.kind, row.key))

    def holding(self, job_id: str) -> Unreadable | None:
        """Why this job is set aside, if it is."""
        if not self._rows:
            return None
        return next((row for row in list(self._rows.values()) if row.holds and row.job_id == job_id), None)

    def has(self, kind: Kind, key: str) -> bool:
        return (kind, key) in self._rows

    @property
    def aside(self) -> list[str]:
        """The jobs that are set aside."""
        return sorted({row.job_id for row in list(self._rows.values()) if row.holds and row.job_id})

    def read(
        self,
        kind: Kind,
        key: str,
        decode: Callable[..., T],
        *args: Any,
        job_id: str | None = None,
        holds: bool = False,
    ) -> T | None:
        """`decode(*args)`; None: it cannot be, and is noted."""
        try:
            value = decode(*args)
        except DAMAGE as error:
            self.note(Unreadable(kind, key, reason_of(error), job_id, holds))
            return None
        if self._rows and (known := self._rows.get((kind, key))) and not known.foreign:
            self.forget(kind, key)
        return value

    def note(self, row: Unreadable) -> None:
        if len(self._rows) < MOST_KEPT or (row.kind, row.key) in self._rows:
            self._rows[row.kind, row.key] = row
            self._seen.add((row.kind, row.key))

    def note_foreign(self, record: JobRecord) -> None:
        """A job that was read, and whose calendar this host does not know."""
        if record.foreign is not None:
            self.note(Unreadable("job", record.id, record.foreign, record.id, holds=True, foreign=True))
        elif self._rows and (known := self._rows.get(("job", record.id))) and known.foreign:
            self.forget("job", record.id)

    def forget(self, kind: Kind, key: str) -> None:
        self._rows.pop((kind, key), None)

    def forget_job(self, job_id: str) -> None:
        for row in [row for row in self.rows if row.job_id == job_id]:
            self.forget(row.kind, row.key)

    def begin_check(self) -> list[Unreadable]:
        """What is to be read once more. Rows not noted again before `end_check` can be read, or are gone."""
        self._seen.clear()
        return self.rows

    def end_check(self, checked: Iterable[Unreadable]) -> None:
        for row in checked:
            if (row.kind, row.key) not in self._seen:
                self.forget(row.kind, row.key)


def reason_of(error: BaseException) -> str:
    """One line. The cause says more than `a stored Job cannot be read`."""
    text = str(error).strip().partition("\n")[0] or type(error).__name__
    return text[:300]


def checked_fire(fire: FireRecord) -> FireRecord:
    """A fire as it was decoded from columns that could hold anything: what the rules rely on is as they expect."""
    numbers = (fire.token, fire.count, fire.claim_no, fire.attempt, fire.crashes, fire.settled)
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise StoreCorrupt("a number in it is none")
    if fire.state is State.RUNNING and (type(fire.replica) is not str or fire.started_at is None):
        raise StoreCorrupt("it is running, and does not say where or since when")
    if fire.state.final and fire.finished_at is None:
        raise StoreCorrupt(f"it is {fire.state}, and does not say since when")
    for value in (fire.args, fire.progress, fire.repeats, fire.remote, fire.trace):
        if value is not None and not isinstance(value, Mapping):
            raise StoreCorrupt("its arguments or progress are no object")
    return fire


def checked_job(record: JobRecord, id: str) -> JobRecord:
    """The same for a job in the row of this id."""
    if record.id != id:
        raise StoreCorrupt(f"the row of {id} holds job {record.id}")
    if type(record.token) is not int or record.token < 0:
        raise StoreCorrupt("its last token is no number")
    return record


# --- what is left of a row that cannot be read -----------------------------------------------------------------


def salvaged(decoders: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    """The fields that can be decoded by themselves."""
    found = {}
    for name, decode in decoders.items():
        try:
            found[name] = decode()
        except DAMAGE:
            continue
    return found


def salvaged_presence(id: str, found: Mapping[str, Any]) -> ReplicaRecord:
    """A replica whose row cannot be read. If it lives its next heartbeat writes the row anew; if it is dead, this is
    what the leader watches, and it is declared dead like others, only later."""
    blank = ReplicaRecord(id, "", 0, "", _EPOCH, UNKNOWN_TTL, UNKNOWN_HEARTBEAT, expires=0.0)
    return changed(blank, **{**found, "id": id})


def salvaged_lease(at: Moment, found: Mapping[str, Any]) -> Lease:
    """A lease that cannot be read: no replica holds it, and the next that asks leads, in a term above all before.
    A term that is lost is counted on from the store's clock: one by one, terms never come as far. Where what is known
    of a loss of data cannot be read, all that is undecided may have run."""
    era = Era(
        found.get("incarnation", 0),
        found.get("standing", "restarted"),
        found.get("lost_through", at.wall),
        found.get("server", ""),
    )
    return Lease(None, found.get("term", _seconds(at)), era=era)


def salvaged_token(at: Moment, era: Era) -> int:
    """Above all tokens of a job whose last one cannot be read. Counted one by one they never come as far; and should
    it happen again, the store's clock has gone on."""
    return era.first_token + (1 << 39) + 64 * _seconds(at)


def salvaged_fire(at: Moment, fire: FireRecord, reason: str) -> FireRecord:
    """What takes the place of a live fire that cannot be read, once its job is removed."""
    return replace(fire, state=State.LOST, reason=reason, finished_at=at.wall)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SINCE = datetime(2020, 1, 1, tzinfo=UTC)


def _seconds(at: Moment) -> int:
    return max(0, int((at.wall - _SINCE).total_seconds()))
