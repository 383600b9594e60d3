"""What a phase sees of its run, and reports to it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fencepost.errors import ConfigurationError, EffectCommitted, PartCommitted, UsageError
from fencepost.model import Json
from fencepost.model.values import clean_json, clean_text
from fencepost.pipeline.memory import MOST_WARNINGS, WARNING_LIMIT, Passed, PipelineMemory
from fencepost.pipeline.progress import BEFORE_THE_FIRST, Progress, triggered_by
from fencepost.pipeline.publish import published
from fencepost.pipeline.source import Freshness, Source
from fencepost.runs.fire import Fire, Saved
from fencepost.settings import did_you_mean

if TYPE_CHECKING:
    from fencepost.pipeline.pipeline import Pipeline


class PipelineRun:
    """One run of a pipeline. Everything here may be called from the phase's own thread."""

    def __init__(
        self, pipeline: Pipeline, fire: Fire, mode: str, force: bool, memory: PipelineMemory
    ) -> None:
        self.pipeline = pipeline
        self.fire = fire
        self.mode = mode
        self.force = force
        self.trigger = triggered_by(fire.scheduled, fire.args)
        self.kept: Mapping[str, Json] = {}
        """What phases of the last successful run asked to keep."""
        self.sources: Mapping[str, Freshness] = {}
        """By name: what the probe found. Only of those that were probed."""
        self.phase = Passed(BEFORE_THE_FIRST, "done")
        """The one that runs."""
        self.progress = Progress(fire, mode, memory.passed)
        self._memory = memory

    # --- what has been -------------------------------------------------------------------------------------

    @property
    def run_type(self) -> str | None:
        """None: not chosen yet."""
        return self._memory.run_type

    @property
    def results(self) -> Mapping[str, Json]:
        """By phase: what it returned, in this attempt or one before."""
        return MappingProxyType(self._memory.results)

    @property
    def saved(self) -> Json:
        """What an earlier attempt of this phase has saved; None: nothing."""
        return self._memory.saved if self._memory.inside == self.phase.name else None

    def has_changed(self, sources: Sequence[str] = ()) -> bool:
        """Whether one of these sources (all) is not known to be the one of the last success."""
        return any(self.sources[name].changed for name in sources or self.sources if name in self.sources)

    # --- reporting -----------------------------------------------------------------------------------------

    def report(self, *, done: float | None = None, total: float | None = None, message: str = "") -> None:
        """Report how far this phase is. Costs next to nothing, so report every row. Raises if this run was asked
        to end: a blocking phase ends here."""
        if self.fire.asked_to_end:
            self.fire.check()
        self.progress.report(done, total, str(message))

    def check(self) -> None:
        """Raise if this run was asked to end, or may no longer be the only one."""
        self.fire.check()

    def warn(self, text: str) -> None:
        """Note something that is kept with the run's history."""
        if self._memory.warned() + len(self.phase.warnings) < MOST_WARNINGS:
            self.phase.warnings.append(clean_text(str(text), WARNING_LIMIT))

    def reuse(self, why: str = "") -> None:
        """This phase found that there was nothing to do: it will be on record as reused."""
        self.phase.outcome = "reused"
        self.progress.report(None, None, why)

    def save(self, value: Json) -> Saved:
        """Keep this JSON value while the phase goes on: if it is cut off, `run.saved` has it when it begins again.
        `await run.save(…)`, or `run.save(…).wait()` in a blocking phase."""
        if not self.pipeline.resumable:
            raise UsageError(
                f"pipeline {self.pipeline.name} is not resumable: nothing would read what is saved"
            )
        cleaned = clean_json(value, f"what phase {self.phase.name} saves")
        self._memory.inside, self._memory.saved = self.phase.name, cleaned
        return self.fire.save(self._memory.to_json())

    def keep(self, **values: Json) -> None:
        """If the run succeeds, later ones find these in `run.kept`: written with its outcome, or not at all."""
        self._memory.values.update(clean_json(values, "what is to be kept"))

    # --- sources and data ----------------------------------------------------------------------------------

    def download(
        self,
        source: str,
        path: str | os.PathLike[str],
        *,
        sha256: str | None = None,
        most_bytes: int | None = None,
    ) -> Path:
        """Fetch a source into this file, which appears when it is complete and checked. Blocking: in a coroutine,
        `await asyncio.to_thread(run.download, …)`. What was cut off is resumed. If the run succeeds, the next probe is
        compared with the bytes fetched here."""
        from fencepost.pipeline.download import (
            Download,  # needs the HTTP client, which not every pipeline does
        )

        download = Download(self._source(source), Path(path), sha256, most_bytes, self.report)
        self._memory.processed[source] = download.fetch().to_json()
        return Path(path)

    def processed(self, source: str) -> None:
        """This phase processes the source without `download`: if the run succeeds, the next probe is compared with
        that of this run, which was made before."""
        freshness = self.sources.get(self._source(source).name)
        if freshness is not None and freshness.validators is not None:
            self._memory.processed[source] = freshness.validators.to_json()

    def publish(self, connection: Any, *tables: str) -> AbstractContextManager[Mapping[str, str]]:
        """Load new contents of these tables aside, then let them take the place of the old ones in one transaction:

        with run.publish(connection, "stops", "matches") as new:
            connection.executemany(f"insert into {new['stops']} values (?, ?)", rows)
        """
        return published(self.fire, connection, tables, name=self.phase.name)

    # --- for the pipeline -----------------------------------------------------------------------------------

    def take_as_done(self, done: EffectCommitted) -> None:
        """What this phase is for has been done by an attempt that did not live to say so. Others come after it. An
        effect with another name than the phase's may be a part of it: that is raised again."""
        if isinstance(done, PartCommitted) and done.name != self.phase.name:
            raise done
        self.warn(str(done))

    def to_json(self) -> dict[str, Json]:
        """For a phase in a process of its own."""
        return {
            "pipeline": self.pipeline.name,
            "resumable": self.pipeline.resumable,
            "mode": self.mode,
            "force": self.force,
            "memory": self._memory.to_json(),
            "kept": dict(self.kept),
            "sources": {name: each.to_json() for name, each in self.sources.items()},
            "phase": asdict(self.phase),
            "rewritten": self.progress.rewritten,
            "reused": self.progress.reused,
            "claimed": self.fire._claimed,
        }

    def take(self, left: Mapping[str, Any]) -> Json:
        """What such a phase has left behind; its result."""
        self.phase.outcome, self.phase.warnings = left["phase"]["outcome"], left["phase"]["warnings"]
        self._memory.values.update(left["values"])
        return left["result"]

    def _source(self, name: str) -> Source:
        known = self.pipeline.sources
        if name not in known:
            raise ConfigurationError(
                f"pipeline {self.pipeline.name} has no source {name!r}{did_you_mean(name, known)}"
            )
        return known[name]
