"""Phases in processes of their own: `@pipeline.phase(…, executor="process")`. Both sides are here.

The replica starts a fresh interpreter, which finds the phase's function by its name and calls it with a run made of
what the replica has sent. Reports and saves travel at once; what the phase returns, keeps and warns of, when it ends.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any, NoReturn

from fencepost.errors import ConfigurationError, EffectCommitted
from fencepost.model import Json
from fencepost.model.values import clean_json
from fencepost.pipeline.memory import Passed, PipelineMemory
from fencepost.pipeline.progress import EVERY
from fencepost.pipeline.run import PipelineRun
from fencepost.pipeline.source import Freshness
from fencepost.pipeline.threads import in_thread, takes_run
from fencepost.runs.bodies.child import find
from fencepost.runs.bodies.process import FunctionBody, whereabouts
from fencepost.runs.fenced import Scope
from fencepost.runs.fire import Fire
from fencepost.runs.run import Run
from fencepost.runs.tasks import Task


def check_can_be_found(function: Callable[..., Any], what: str) -> None:
    """By another interpreter."""
    inner = function.func if isinstance(function, partial) else function
    if "<" in getattr(inner, "__qualname__", "<") or inspect.ismethod(inner):  # <lambda>, <locals>
        raise ConfigurationError(
            f"{what}: a process finds a function by its name; define it at the top of a module, and give it what "
            "it needs with functools.partial(function, name=value)"
        )
    if isinstance(function, partial):
        if function.args:
            raise ConfigurationError(f"{what}: name the arguments of its partial; the first one is the run")
        clean_json(function.keywords, f"the arguments of {what}")


def may_have_processes(fire: Fire) -> bool:
    """A fake fire, and one in virtual time, may not: there a phase runs in a thread."""
    return isinstance(fire._link, Run) and fire._link.descriptors is not None


# --- the replica's side -------------------------------------------------------------------------------------


async def in_process(function: Callable[..., Any], run: PipelineRun) -> Json:
    """What the function returned there. What it raised is raised here as `RaisedElsewhere`."""
    link = run.fire._link
    assert isinstance(link, Run)
    there = _There(run, link)
    body = _PhaseBody(function, run, there, link.descriptors or ())
    renewing = asyncio.create_task(_keep_trusted(body, link))
    try:
        await in_thread(lambda: body.run(lambda: None), stop=lambda: body.stop(link.cause or "drain"))
    finally:
        renewing.cancel()
    return run.take(there.left)


async def _keep_trusted(body: FunctionBody, link: Run) -> None:
    """Tell the process how long this run may take itself to be the only one: each heartbeat prolongs that."""
    while True:
        await asyncio.sleep(EVERY)
        body.trust_until(link.trusted_until)


class _There:
    """The link of a fire whose phase runs in a process: some of what it says is for the run, the rest for the store."""

    def __init__(self, run: PipelineRun, link: Run) -> None:
        self._run = run
        self._link = link
        self.left: Mapping[str, Json] = {}
        """What the phase leaves behind: said with its end."""

    @property
    def scope(self) -> Scope:
        return self._link.scope

    @property
    def trusted_until(self) -> float:
        return self._link.trusted_until

    def trusted(self) -> bool:
        return self._link.trusted()

    def steady(self) -> float:
        return self._link.steady()

    def report(self, progress: Mapping[str, Json]) -> None:
        self._run.progress.report(progress["done"], progress["total"], progress["message"])

    def save(
        self, checkpoint: Json, progress: Mapping[str, Json] | None = None
    ) -> concurrent.futures.Future[bool]:
        return self._link.save(checkpoint, progress)

    def keep(self, value: Json) -> None:
        self.left = value

    def kept(self) -> concurrent.futures.Future[Json]:
        return self._link.kept()

    def said(self) -> None:
        self._link.said()

    def returned(self, value: object) -> None:
        return

    def dropped_result(self, why: str) -> None:
        return


class _PhaseBody(FunctionBody):
    def __init__(self, function: Callable[..., Any], run: PipelineRun, *more: Any) -> None:
        super().__init__(Task.of(call_phase, "phase"), run.fire, *more)
        bound = function if isinstance(function, partial) else partial(function)
        self._phase = {"where": whereabouts(bound.func), "keywords": bound.keywords, "run": run.to_json()}

    def _order(self) -> dict[str, Json]:
        return {**super()._order(), "args": {"phase": self._phase}}


# --- the process's side -------------------------------------------------------------------------------------


def call_phase(fire: Fire, phase: Mapping[str, Any]) -> None:
    """What the process runs. It knows neither the pipeline nor what is declared beside it: only this function."""
    function = partial(find(phase["where"]), **phase["keywords"])
    run = PhaseRun.of(fire, phase["run"])
    with run.reporting():
        result = None
        try:
            result = function(run) if takes_run(function) else function()
            if inspect.iscoroutine(result):
                result = asyncio.run(result)
        except EffectCommitted as done:
            run.take_as_done(done)
    fire.keep(run.left(result))


class PhaseRun(PipelineRun):
    """What a phase in a process of its own sees of its run: all but the sources."""

    @classmethod
    def of(cls, fire: Fire, said: Mapping[str, Any]) -> PhaseRun:
        from fencepost.pipeline.pipeline import Pipeline  # which declares phases, and so imports this module

        fire._claimed = said["claimed"]
        pipeline = Pipeline(said["pipeline"], resumable=said["resumable"])
        run = cls(pipeline, fire, said["mode"], said["force"], PipelineMemory.of(said["memory"]))
        run.kept = said["kept"]
        run.sources = {name: Freshness.of(each) for name, each in said["sources"].items()}
        run.phase = Passed(**said["phase"])
        run.progress.rewritten, run.progress.reused = said["rewritten"], said["reused"]
        return run

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Send the latest report at intervals, and the last one in the end."""
        over = threading.Event()

        def send() -> None:
            while not over.wait(EVERY):
                self.progress.send_if_new()

        sender = threading.Thread(target=send, name="fencepost-reports", daemon=True)
        sender.start()
        try:
            yield
        finally:
            over.set()
            sender.join()
            self.progress.send_if_new()

    def left(self, result: Json) -> Json:
        return {"result": result, "phase": asdict(self.phase), "values": self._memory.values}

    def _source(self, name: str) -> NoReturn:
        raise ConfigurationError(
            f"phase {self.phase.name} runs in a process of its own, which does not know the source {name!r}; "
            "download it in a phase before"
        )
