"""What a user's function gets to know of its own run."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Generator, Mapping
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from fencepost.errors import ConfigurationError, FencedOut, RunCancelled
from fencepost.model import FireRecord, Json
from fencepost.model.traces import CALLER
from fencepost.model.values import clean_json, clean_number, clean_text, fresh_copy
from fencepost.runs.masking import Mask
from fencepost.runs.output import Output

if TYPE_CHECKING:
    from fencepost.runs.fake import FakeFire
    from fencepost.runs.fenced import Scope

T = TypeVar("T")

CHECKPOINT_LIMIT = 65_536
RESULT_LIMIT = 16_384
"""Bytes of JSON that a body may return to have it kept."""
MESSAGE_LIMIT = 500
REPORT_LIMIT = 65_536


class ReplicaLink(Protocol):
    """A fire's way back to its replica. Safe to call from any thread."""

    @property
    def scope(self) -> Scope: ...

    def trusted(self) -> bool: ...

    def steady(self) -> float: ...

    def report(self, progress: Mapping[str, Json]) -> None: ...

    def save(
        self, checkpoint: Json, progress: Mapping[str, Json] | None = None
    ) -> concurrent.futures.Future[bool]: ...

    def keep(self, value: Json) -> None: ...

    def kept(self) -> concurrent.futures.Future[Json]: ...

    def said(self) -> None:
        """There is more output."""


class Fire:
    """One run of one fire.

    The token grows with every claim of the job: hand it to whatever your code changes, and have stale ones refused
    there; or hand over `effect_key` as an idempotency key. `fenced_out` turns true as soon as this run can no longer
    be sure to be the only one; `check()` raises then. A blocking function should call it between steps.
    """

    def __init__(self, record: FireRecord, args: Mapping[str, Json], link: ReplicaLink) -> None:
        self.record = record
        """The fire as it was claimed."""
        self.key: str = record.key
        self.effect_key: str = record.effect_key
        """Under which its effects happen once. A retry shares it with the fire that it repeats."""
        self.retry_of: str | None = record.retry_of
        self.job_id: str = record.job_id
        self.due_at: datetime = record.nominal_due_at
        self.scheduled: bool = record.scheduled
        self.args: Mapping[str, Json] = fresh_copy(args)
        self.token: int = record.token
        self.attempt: int = record.attempt
        self.replica: str = record.replica or ""
        self.checkpoint: Json = fresh_copy(record.checkpoint)
        self.traceparent: str | None = (record.trace or {}).get(CALLER)
        """The trace context of this run (W3C); if it is not traced, that of whatever triggered it."""
        self._link = link
        self._claimed = link.steady()
        self._more: dict[str, Json] = {}
        self._ended: str | None = None
        self._effects: set[str] = set()
        """The names of those committed by this run."""
        self._output: Output | None = None
        self._mask: Mask | None = None
        self._lock = threading.RLock()
        """Taken again by the same thread where a signal, or the end of an object, logs in the midst of `_say`."""

    @property
    def fenced_out(self) -> bool:
        return self._ended is not None or not self._link.trusted()

    @property
    def asked_to_end(self) -> bool:
        """Cancelled, or fenced out for certain. In an outage of the store it is not, although `fenced_out` is true."""
        return self._ended is not None

    def check(self) -> None:
        """Raise if this run was cancelled, or may no longer be the only one."""
        if self._ended == "cancelled":
            raise RunCancelled(f"{self.key} was cancelled")
        if self.fenced_out:
            raise FencedOut(f"{self.key}: token {self.token} is no longer known to be current; stop here")

    def now(self) -> datetime:
        """The store's time, as well as it is known here: that of the claim, and what has passed since by the steady
        clock. No wall clock of this machine takes part."""
        passed = timedelta(seconds=self._link.steady() - self._claimed)
        return (self.record.started_at or self.due_at) + passed

    def report(
        self, *, done: float | None = None, total: float | None = None, message: str = "", **more: Json
    ) -> None:
        """Report how far this run is, and `more` as JSON, which stays until it is reported again.
        Cheap: only the latest report travels. A value that cannot be stored raises `TypeError`."""
        self._link.report(self._progress(done, total, message, **more))

    def save(self, checkpoint: Json, **report: Any) -> Saved:
        """Keep this JSON value (at most 64 KB) with the fire: a later attempt finds it in `fire.checkpoint`. What
        `report` takes may be given as well: both are written in one step, or neither is.

        `await fire.save(…)`, or `fire.save(…).wait()` in a blocking function. The value is copied: changing it later
        changes nothing that was saved.
        """
        cleaned = clean_json(checkpoint, f"checkpoint of {self.key}", CHECKPOINT_LIMIT)
        progress = self._progress(**report) if report else None
        self.checkpoint = fresh_copy(cleaned)
        return Saved(self.key, self._link.save(cleaned, progress))

    def _progress(
        self, done: float | None = None, total: float | None = None, message: str = "", **more: Json
    ) -> dict[str, Json]:
        if more:
            self._more = clean_json({**self._more, **more}, f"report of {self.key}", REPORT_LIMIT)
        return {
            "done": clean_number(done, f"report of {self.key}: done"),
            "total": clean_number(total, f"report of {self.key}: total"),
            "message": clean_text(str(message), MESSAGE_LIMIT),
            **self._more,
        }

    def keep(self, value: Json) -> None:
        """If this run succeeds, its job keeps this JSON value (at most 64 KB) for the runs after it. It is written
        together with the outcome: a run that fails, or is fenced out, leaves what was kept before."""
        self._link.keep(clean_json(value, f"what {self.key} keeps", CHECKPOINT_LIMIT))

    def kept(self) -> StoreAnswer[Json]:
        """What the last success has kept: `await fire.kept()`, or `fire.kept().wait()` in a blocking function."""
        return StoreAnswer(self._link.kept())

    def fenced(self, connection: Any, *, name: str = "") -> Any:
        """A transaction whose effect happens once, whatever becomes of this run and of those that repeat it:

            with fire.fenced(connection):              # sqlite3, psycopg
                connection.execute("insert …")
            async with fire.fenced(connection): …      # psycopg.AsyncConnection

        It commits at the end, and rolls back if anything is raised. `FencedOut`: this run's token is not current.
        `EffectCommitted`: an earlier attempt has done it; if you let it pass the run counts as succeeded. A fire with
        several effects gives each a `name`; catch it there, and go on with the others. See docs/execution.md.
        """
        from fencepost.runs.fenced import fenced

        return fenced(self, self._link.scope, connection, name)

    @staticmethod
    def fake(args: Mapping[str, Json] | None = None, **values: Any) -> FakeFire:
        """A fire for calling a job's function in a test: `report(Fire.fake({"region": "ch"}))`.

        `values`: `job_id`, `due_at`, `scheduled`, `token`, `attempt`, `replica`, `checkpoint`, `kept`,
        `effect_key`. It notes what the function does with it in `reports`, `saved` and `keeps`; `fence()` and
        `cancel()` say what they say.
        """
        from fencepost.runs.fake import FakeFire

        return FakeFire(args, **values)

    def _raise_if_ended(self) -> None:
        """Told to end, not merely out of touch: then it may well be the only one, and who commits first decides."""
        if self._ended is not None:
            self.check()

    def _say(self, text: str) -> None:
        """To be kept with the fire."""
        with self._lock:
            if self._output is None:
                self._output = Output(self.record, self._mask)
            self._output.add(text)
        self._link.said()

    def _said(self) -> str | None:
        """All that is kept; None: this run has said nothing."""
        if self._output is None:
            return None
        with self._lock:
            return str(self._output)

    def _end(self, how: str) -> None:
        with self._lock:
            self._ended = self._ended or how

    def __repr__(self) -> str:
        return f"<Fire {self.key} token={self.token} attempt={self.attempt}>"


class StoreAnswer(Generic[T]):
    """An answer of the store on its way: `await` it, or `wait()` for it in a blocking function."""

    def __init__(self, future: concurrent.futures.Future[Any]) -> None:
        self._future = future

    def wait(self, timeout: float | None = None) -> T:
        return self._checked(self._future.result(timeout))

    def __await__(self) -> Generator[Any, None, T]:
        return self._checked((yield from asyncio.wrap_future(self._future).__await__()))

    def _checked(self, answer: Any) -> T:
        given: T = answer
        return given


class Saved(StoreAnswer[None]):
    """A checkpoint on its way."""

    def __init__(self, key: str, future: concurrent.futures.Future[bool]) -> None:
        super().__init__(future)
        self._key = key

    def _checked(self, accepted: bool) -> None:
        if not accepted:
            raise FencedOut(f"{self._key}: the checkpoint was refused, its token is not current")


_current: ContextVar[Fire | None] = ContextVar("fencepost_current_fire", default=None)


def current_fire() -> Fire:
    """The fire whose function is running here."""
    fire = _current.get()
    if fire is None:
        raise ConfigurationError("current_fire() works only inside a job that Fencepost runs")
    return fire


def traceparent_of_fire() -> str | None:
    """Of the fire whose function is running here, if one is."""
    fire = _current.get()
    return None if fire is None else fire.traceparent


def entered(fire: Fire, function: Callable[..., Any], keywords: Mapping[str, Any]) -> Any:
    """Call `function` with `fire` as the current one. The context is the run's own and ends with it."""
    _current.set(fire)
    return function(**keywords)
