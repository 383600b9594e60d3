"""What a user's function gets to know of its own run."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Generator, Mapping
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from fencepost.errors import ConfigurationError, FencedOut, RunCancelled, UsageError
from fencepost.model import FireRecord, Json, json_value

if TYPE_CHECKING:
    from fencepost.testing.fake import FakeFire

CHECKPOINT_LIMIT = 65_536
MESSAGE_LIMIT = 500


class Link(Protocol):
    """A fire's way back to its replica. Safe to call from any thread."""

    def trusted(self) -> bool: ...

    def report(self, progress: Mapping[str, Json]) -> None: ...

    def save(self, checkpoint: Json) -> concurrent.futures.Future[bool]: ...


class Fire:
    """One run of one fire.

    The token grows with every claim of the job: hand it, or the key, to whatever your code changes, and have
    stale ones refused there. `fenced_out` turns true as soon as this run can no longer be sure to be the only
    one; `check()` raises then. A blocking function should call it between steps.
    """

    def __init__(self, record: FireRecord, args: Mapping[str, Json], link: Link) -> None:
        self.record = record
        """The fire as it was claimed."""
        self.key: str = record.key
        self.job_id: str = record.job_id
        self.due_at: datetime = record.due_at
        self.scheduled: bool = record.scheduled
        self.args: Mapping[str, Json] = args
        self.token: int = record.token
        self.attempt: int = record.attempt
        self.replica: str = record.replica or ""
        self.checkpoint: Json = record.checkpoint
        self._link = link
        self._ended: str | None = None
        self._lock = threading.Lock()

    @property
    def fenced_out(self) -> bool:
        return self._ended is not None or not self._link.trusted()

    def check(self) -> None:
        """Raise if this run was cancelled, or may no longer be the only one."""
        if self._ended == "cancelled":
            raise RunCancelled(f"{self.key} was cancelled")
        if self.fenced_out:
            raise FencedOut(f"{self.key}: token {self.token} is no longer known to be current; stop here")

    def report(self, *, done: float | None = None, total: float | None = None, message: str = "") -> None:
        """Tell how far this run is. Cheap: only the latest report travels."""
        self._link.report({"done": done, "total": total, "message": str(message)[:MESSAGE_LIMIT]})

    def save(self, checkpoint: Json) -> Saved:
        """Keep this JSON value (at most 64 KB) with the fire: a later attempt finds it in `fire.checkpoint`.

        `await fire.save(…)`, or `fire.save(…).wait()` in a blocking function.
        """
        json_value(checkpoint, f"checkpoint of {self.key}", CHECKPOINT_LIMIT)
        self.checkpoint = checkpoint
        return Saved(self.key, self._link.save(checkpoint))

    def fenced(self, connection: object) -> Any:
        raise UsageError(
            f"{type(connection).__name__} is not a connection Fencepost can fence; "
            "compare fire.token in your own transaction"
        )

    @staticmethod
    def fake(args: Mapping[str, Json] | None = None, **values: Any) -> FakeFire:
        """A fire for calling a job's function in a test: `report(Fire.fake({"region": "ch"}))`.

        `values`: `job_id`, `due_at`, `scheduled`, `token`, `attempt`, `replica`, `checkpoint`. It keeps what the
        function does with it in `reports` and `saved`; `fence()` and `cancel()` say what they say.
        """
        from fencepost.testing.fake import FakeFire

        return FakeFire(args, **values)

    def _end(self, how: str) -> None:
        with self._lock:
            self._ended = self._ended or how

    def __repr__(self) -> str:
        return f"<Fire {self.key} token={self.token} attempt={self.attempt}>"


class Saved:
    """A checkpoint on its way."""

    def __init__(self, key: str, future: concurrent.futures.Future[bool]) -> None:
        self._key = key
        self._future = future

    def wait(self, timeout: float | None = None) -> None:
        self._checked(self._future.result(timeout))

    def __await__(self) -> Generator[Any, None, None]:
        self._checked((yield from asyncio.wrap_future(self._future).__await__()))

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


def entered(fire: Fire, function: Callable[..., Any], keywords: Mapping[str, Any]) -> Any:
    """Call `function` with `fire` as the current one. The context is the run's own: nobody sees it after."""
    _current.set(fire)
    return function(**keywords)
