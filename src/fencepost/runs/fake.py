"""A fire for calling a job's function directly, without a scheduler: made by `Fire.fake`."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Mapping
from contextvars import Token
from datetime import UTC, datetime

from fencepost.model import FireRecord, Json, fire_key, manual_key
from fencepost.model.triggers import as_utc
from fencepost.model.values import clean_json
from fencepost.runs.fenced import Scope
from fencepost.runs.fire import Fire, _current

EPOCH = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)
"""When it was due, unless a test says otherwise; virtual time begins then, too."""


class FakeFire(Fire):
    """Keeps what the function reports and saves, and can be fenced out or cancelled.

    As a context manager it is what `current_fire()` answers.
    """

    def __init__(
        self,
        args: Mapping[str, Json] | None = None,
        *,
        job_id: str = "job",
        due_at: datetime = EPOCH,
        scheduled: bool = True,
        token: int = 1,
        attempt: int = 1,
        replica: str = "fake",
        checkpoint: Json = None,
        kept: Json = None,
        effect_key: str | None = None,
    ) -> None:
        due_at = as_utc(due_at, "due_at")
        key = fire_key(job_id, due_at) if scheduled else manual_key(job_id, "fake")
        record = FireRecord(key, job_id, due_at, scheduled, token=token, attempt=attempt, replica=replica)
        self._recorder = Recorder(kept)
        super().__init__(record, clean_json(args or {}, "args"), self._recorder)
        self.checkpoint = clean_json(checkpoint, "checkpoint")
        self.effect_key = effect_key or key
        self._entered: Token[Fire | None] | None = None

    @property
    def reports(self) -> list[Mapping[str, Json]]:
        """What it reported, as `{"done": 3, "total": 10, "message": "…"}`; the latest last."""
        return self._recorder.reports

    @property
    def saved(self) -> list[Json]:
        """The checkpoints it saved, the latest last."""
        return self._recorder.saved

    @property
    def keeps(self) -> list[Json]:
        """What it asked its job to keep; the latest counts."""
        return self._recorder.keeps

    def fence(self) -> None:
        """From now on this run may no longer be the only one: `check` raises, checkpoints are refused."""
        self._recorder.current = False

    def cancel(self) -> None:
        """As after `fencepost cancel`: `check` raises."""
        self._end("cancelled")

    def _raise_if_ended(self) -> None:
        self.check()  # there is no store that could know better

    def __enter__(self) -> FakeFire:
        self._entered = _current.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._entered is not None
        _current.reset(self._entered)


class Recorder:
    """A fire's way back to a replica that is not there."""

    def __init__(self, kept: Json = None) -> None:
        self.current = True
        self.scope = Scope()
        self.reports: list[Mapping[str, Json]] = []
        self.saved: list[Json] = []
        self.keeps: list[Json] = []
        self._kept = kept

    def trusted(self) -> bool:
        return self.current

    def steady(self) -> float:
        return 0.0

    def report(self, progress: Mapping[str, Json]) -> None:
        self.reports.append(progress)

    def save(
        self, checkpoint: Json, progress: Mapping[str, Json] | None = None
    ) -> concurrent.futures.Future[bool]:
        if progress is not None:
            self.report(progress)
        if self.current:
            self.saved.append(checkpoint)
        answered: concurrent.futures.Future[bool] = concurrent.futures.Future()
        answered.set_result(self.current)
        return answered

    def said(self) -> None:
        return

    def keep(self, value: Json) -> None:
        self.keeps.append(value)

    def kept(self) -> concurrent.futures.Future[Json]:
        answered: concurrent.futures.Future[Json] = concurrent.futures.Future()
        answered.set_result(self._kept)
        return answered
