"""One run of a pipeline, from its first phase to its last, and on from where an earlier attempt was cut off."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from fencepost.errors import ConfigurationError, EffectCommitted, RaisedElsewhere
from fencepost.model import Json
from fencepost.model.triggers import iso
from fencepost.model.values import clean_json
from fencepost.pipeline.memory import FORMAT, Passed, PipelineMemory
from fencepost.pipeline.process import in_process, may_have_processes
from fencepost.pipeline.progress import BEFORE_THE_FIRST, duration_name, expected, learned
from fencepost.pipeline.rules import refresh_scope
from fencepost.pipeline.run import PipelineRun
from fencepost.pipeline.source import PROBE, Freshness, Source, Validators, freshness, probed
from fencepost.pipeline.threads import called, in_thread
from fencepost.runs.fire import Fire
from fencepost.runs.masking import own_mask
from fencepost.runs.tracing import step

if TYPE_CHECKING:
    from fencepost.pipeline.pipeline import Phase, Pipeline

log = logging.getLogger("fencepost")

RESULT_LIMIT = 32_768
ERROR_LIMIT = 300


class PhaseWalk:
    def __init__(self, pipeline: Pipeline, fire: Fire, mode: str, force: bool) -> None:
        self.pipeline = pipeline
        self.fire = fire
        self.memory = PipelineMemory.of(fire.checkpoint) if pipeline.resumable else PipelineMemory()
        self.run = PipelineRun(pipeline, fire, mode, force, self.memory)
        self.progress = self.run.progress
        self.kept: Mapping[str, Json] = {}
        """All that the last success has left."""

    async def walk(self) -> None:
        self._forget_what_must_be_repeated()
        self.progress.enter(BEFORE_THE_FIRST, "Initializing")
        await self._save()  # from now on a graceful stop gives the run back
        kept = await self.fire.kept()
        if isinstance(kept, Mapping) and kept.get("pipeline") == FORMAT:
            self.kept = kept
            self.run.kept = kept["values"]
        sending = asyncio.create_task(self.progress.send_at_intervals())
        try:
            await self._probe()
            await self._choose()
            for phase in self.pipeline.phases:
                await self._pass(phase)
            await self._save()
        finally:
            sending.cancel()
            self.progress.send()
        self.fire.keep(self._to_keep())

    # --- before the phases ---------------------------------------------------------------------------------

    def _forget_what_must_be_repeated(self) -> None:
        """An earlier attempt may have run elsewhere. If it left out what cannot be left out here, because files are
        missing, all starts again; a phase whose own files are missing is done again, and with it what came after.
        So is everything after the first phase that a new release has put in or renamed."""
        names = []
        if self._lacks_what_was_reused():
            self.memory.run_type = None
        else:
            names.append(PROBE)
            names += [phase.name for phase in takewhile(self._stands, self.pipeline.phases)]
        self.memory.keep_only(names)
        self.progress.passed = self.memory.passed
        if self.memory.run_type in self.pipeline.run_types:
            self._show_scope()

    def _lacks_what_was_reused(self) -> bool:
        found = self.memory.results.get(PROBE, {})
        unchanged = [name for name, each in found.items() if not each["changed"]]
        sources = [self.pipeline.sources[name] for name in unchanged if name in self.pipeline.sources]
        return any(source.missing_artefact() for source in sources)

    def _stands(self, phase: Phase) -> bool:
        """Whether an earlier attempt has passed it for good."""
        outcome = self.memory.outcome_of(phase.name)
        return outcome is not None and (outcome != "done" or all(path.exists() for path in phase.artefacts))

    async def _probe(self) -> None:
        """Ask the sources of this mode whether they have changed since the last success."""
        sources = [
            source
            for source in self.pipeline.sources.values()
            if source.probe and (not source.modes or self.run.mode in source.modes)
        ]
        if sources and self.memory.outcome_of(PROBE) is None:
            self._begin(PROBE, "Looking for changes")
            self.progress.send()
            found = await self._timed(lambda: self._ask(sources))
            self._end({name: each.to_json() for name, each in found.items()})
        if sources:
            found = self.memory.results[PROBE]
            self.run.sources = {name: Freshness.of(each) for name, each in found.items()}

    async def _ask(self, sources: Sequence[Source]) -> dict[str, Freshness]:
        answers = await asyncio.gather(*(in_thread(partial(probed, each)) for each in sources))
        last = self.kept.get("sources", {})
        found = {}
        for source, answer in zip(sources, answers, strict=True):
            before = last.get(source.name)
            each = freshness(source, answer, None if before is None else Validators.of(before))
            if isinstance(answer, str):  # it is treated as changed; why must be visible
                self.run.warn(f"{source.name}: {answer}")
            found[source.name] = each
        return found

    async def _choose(self) -> None:
        if self.memory.run_type not in self.pipeline.run_types:
            self.run.phase = Passed(BEFORE_THE_FIRST, "done")
            self.memory.run_type = await self._timed(self._chosen)
        self._show_scope()

    def _show_scope(self) -> None:
        self.progress.run_type = self._run_type
        scope = refresh_scope(self.pipeline.phases, self.run.mode, self._run_type)
        self.progress.rewritten, self.progress.reused = scope
        self.memory.rewritten, self.memory.reused = scope

    async def _chosen(self) -> str:
        if self.pipeline.chooser is not None:
            return self.pipeline.checked_run_type(await called(self.pipeline.chooser, self.run))
        for rule in self.pipeline.rules:
            if rule.may_apply(self.run) and (rule.when is None or await called(rule.when, self.run)):
                return rule.run_type
        if self.pipeline.rules:
            raise ConfigurationError(
                f"pipeline {self.pipeline.name}: no rule applies to this run; end with one that always does"
            )
        return self.pipeline.run_types[0]

    @property
    def _run_type(self) -> str:
        """Once it is chosen."""
        assert self.memory.run_type is not None
        return self.memory.run_type

    # --- the phases ----------------------------------------------------------------------------------------

    async def _pass(self, phase: Phase) -> None:
        if self.memory.outcome_of(phase.name) is not None:
            return
        if (outcome := phase.left_out(self.run.mode, self._run_type)) is not None:
            self.memory.passed.append(Passed(phase.name, outcome))
            return
        durations = self.kept.get("durations", {}).get(duration_name(self._run_type, phase.name), ())
        self._begin(phase.name, phase.message, phase.blocking, expected(phase.eta, durations))
        # Once this is answered the store has both: that the phase before has ended, and that this one has begun. So
        # the host application must keep its users out before a blocking phase does anything.
        await self._save()
        self._end(await self._timed(lambda: self._call(phase)))

    async def _call(self, phase: Phase) -> Json:
        call = in_process if phase.in_process and may_have_processes(self.fire) else called
        try:
            result = await call(phase.function, self.run)
            return clean_json(result, f"the result of phase {phase.name}", RESULT_LIMIT)
        except EffectCommitted as done:
            self.run.take_as_done(done)
            return None

    def _begin(self, name: str, message: str, *more: Any) -> None:
        self.run.phase = Passed(name, "done", started_at=iso(self.fire.now()), attempt=self.fire.attempt)
        self.progress.enter(name, message, *more)

    async def _timed(self, work: Callable[[], Any]) -> Any:
        """Run it, and put it on record if it fails."""
        phase, begun = self.run.phase, self.fire.now()
        try:
            with step(f"phase {phase.name}", self._span()):
                return await work()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            phase.outcome, phase.error = "failed", _message_of(error)
            self.memory.passed.append(phase)
            # Without the traceback: that of the run's failure is the same.
            log.error("%s: phase %s failed: %s", self.fire.key, phase.name, phase.error)
            raise
        finally:
            phase.seconds = round((self.fire.now() - begun).total_seconds(), 3)

    def _span(self) -> dict[str, str | bool]:
        """What a trace says of the phase."""
        named = {"phase": self.run.phase.name, "mode": self.run.mode, "run_type": self.run.run_type}
        return {f"fencepost.{name}": value for name, value in named.items() if value is not None}

    def _end(self, result: Json) -> None:
        self.memory.passed.append(self.run.phase)
        self.memory.results[self.run.phase.name] = result
        self.memory.inside = self.memory.saved = None

    async def _save(self) -> None:
        """And report progress in the same step: a phase that others see ended is not repeated."""
        if self.pipeline.resumable:
            await self.fire.save(self.memory.to_json(), **self.progress.shown())
        else:
            self.progress.send()

    # --- after the phases ----------------------------------------------------------------------------------

    def _to_keep(self) -> Json:
        """What is written with the success, in one step with it."""
        return {
            "pipeline": FORMAT,
            "run_id": self.fire.key,
            "run_type": self._run_type,
            "mode": self.run.mode,
            "rewritten": self.progress.rewritten,
            "reused": self.progress.reused,
            "data_updated_at": iso(self.fire.now()),
            "sources": {**self.kept.get("sources", {}), **self.memory.processed},
            "durations": learned(self.kept.get("durations", {}), self.memory.passed, self._run_type),
            "values": {**self.run.kept, **self.memory.values},
        }


def _message_of(error: BaseException) -> str:
    kind, message = type(error).__name__, str(error)
    if isinstance(error, RaisedElsewhere):
        kind, message = error.kind, error.message
    return own_mask()(f"{kind}: {message}"[: 2 * ERROR_LIMIT])[:ERROR_LIMIT]
