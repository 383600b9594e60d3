"""Declaring a pipeline: its phases in order, its sources, its modes and run types."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from fencepost.errors import ConfigurationError
from fencepost.model import Json, checked_id
from fencepost.pipeline.phases import PhaseWalk
from fencepost.pipeline.process import check_can_be_found
from fencepost.pipeline.progress import MANUAL
from fencepost.pipeline.rules import Rule, Tables, tables_by_run_type
from fencepost.pipeline.source import PROBE, Source
from fencepost.runs.fire import Fire
from fencepost.settings import did_you_mean, duration

F = TypeVar("F", bound=Callable[..., Any])

MOST_PHASES = 50
MODES = ("full",)
RUN_TYPES = ("complete",)
MESSAGE_LIMIT = 200


@dataclass(frozen=True)
class Phase:
    name: str
    function: Callable[..., Any]
    message: str
    blocking: bool = False
    """The host application should keep its users out while it runs."""
    eta: float | None = None
    """Seconds it takes, until that has been learned."""
    modes: tuple[str, ...] = ()
    """It runs in these only; none named: in all."""
    run_types: tuple[str, ...] = ()
    rewrites: Mapping[str, tuple[str, ...]] | tuple[str, ...] = ()
    reuses: tuple[str, ...] = ()
    artefacts: tuple[Path, ...] = ()
    """Files it leaves behind for later phases. A run resumed where they are missing does this phase again."""
    in_process: bool = False
    """It runs in a process of its own."""

    def left_out(self, mode: str, run_type: str) -> str | None:
        """How a run of this kind does without it: `skipped`, `reused`; None: it does not."""
        if self.modes and mode not in self.modes:
            return "skipped"
        return "reused" if self.run_types and run_type not in self.run_types else None

    def rewritten(self, run_type: str) -> tuple[str, ...]:
        return self.rewrites.get(run_type, ()) if isinstance(self.rewrites, Mapping) else self.rewrites

    @property
    def tables(self) -> tuple[str, ...]:
        """Every one it names."""
        named = self.rewrites.values() if isinstance(self.rewrites, Mapping) else [self.rewrites]
        return (*(table for tables in named for table in tables), *self.reuses)


class Pipeline:
    """A task of ordered phases: `@scheduler.job(every(hours=1))(pipeline)` gives it a schedule.

    A run takes a `mode` (by default the first of `modes`), `force`, and the name of what triggered it.
    Each phase gets the `PipelineRun`; what it returns is its checkpoint. A run given back or cut off by a crash
    resumes at the first phase that has not ended, unless the pipeline is not `resumable`.
    """

    def __init__(
        self,
        name: str,
        *,
        modes: Sequence[str] = MODES,
        run_types: Sequence[str] = RUN_TYPES,
        rules: Sequence[Rule] = (),
        sources: Sequence[Source] = (),
        resumable: bool = True,
    ) -> None:
        self.name = checked_id(name, "pipeline name")
        # It is known by its name, but like a function inside a function not to be found by it from another process.
        self.__qualname__ = f"<locals>.{name}"
        self.modes = _names(modes, f"pipeline {name}: modes")
        self.run_types = _names(run_types, f"pipeline {name}: run_types")
        self.rules = tuple(rules)
        self.sources = {source.name: source for source in sources}
        self.resumable = resumable
        self.phases: list[Phase] = []
        self.chooser: Callable[..., Any] | None = None
        if len(self.sources) < len(sources):
            raise ConfigurationError(f"pipeline {name}: two sources have the same name; rename one")
        for rule in self.rules:
            self._known((rule.run_type,), self.run_types, "run type")
            self._known(rule.modes, self.modes, "mode")
            self._known(rule.sources, self.sources, "source")
        for source in sources:
            self._known(source.modes, self.modes, "mode")

    def phase(
        self,
        name: str,
        *,
        message: str = "",
        blocking: bool = False,
        eta: Any = None,
        modes: Sequence[str] = (),
        run_types: Sequence[str] = (),
        rewrites: Tables = (),
        reuses: Sequence[str] = (),
        artefacts: Sequence[str | os.PathLike[str]] = (),
        executor: Literal["process"] | None = None,
    ) -> Callable[[F], F]:
        """The next phase: a coroutine, or a function, which runs in a thread; either in a process of its own with
        `executor="process"`. It takes the run, or nothing.

        `rewrites` names the tables it writes, or by run type which: `{"complete": […], "cached": […]}`.
        """
        what = f"phase {checked_id(name, 'phase name')} of {self.name}"
        if name == PROBE or any(phase.name == name for phase in self.phases):
            raise ConfigurationError(f"{what}: there is one of that name already; give it another")
        if len(self.phases) >= MOST_PHASES:
            raise ConfigurationError(f"pipeline {self.name} has more than {MOST_PHASES} phases; join some")
        self._known(modes, self.modes, "mode")
        self._known(run_types, self.run_types, "run type")
        tables = tables_by_run_type(rewrites, what)
        if isinstance(tables, Mapping):
            self._known(tuple(tables), self.run_types, "run type")

        if executor not in (None, "process"):
            raise ConfigurationError(
                f'{what}: executor={executor!r} is not known; use "process", or leave it out'
            )

        def declare(function: F) -> F:
            _fits(function, what)
            if executor is not None:
                check_can_be_found(function, what)
            if not self.phases:
                self.__module__ = (
                    function.__module__
                )  # it belongs where its phases are, not where its class is
            self.phases.append(
                Phase(
                    name,
                    function,
                    (message or name.replace("_", " ").capitalize())[:MESSAGE_LIMIT],
                    blocking,
                    None if eta is None else duration(eta).total_seconds(),
                    tuple(modes),
                    tuple(run_types),
                    tables,
                    tuple(reuses),
                    tuple(map(Path, artefacts)),
                    executor is not None,
                )
            )
            return function

        return declare

    def run_type(self, function: F) -> F:
        """This function says the type of a run, once its sources have been probed: `@pipeline.run_type`."""
        if self.rules or self.chooser is not None:
            raise ConfigurationError(f"pipeline {self.name} has a way to choose its run type; keep one")
        _fits(function, f"the function that chooses the run type of {self.name}")
        self.chooser = function
        return function

    @property
    def default_policies(self) -> Mapping[str, Json]:
        """Of its jobs, where nothing else is said."""
        return {"after_crash": "rerun"} if self.resumable else {}

    def check_args(self, mode: Any = None, force: Any = False, trigger: Any = MANUAL) -> str:
        """Of a job or a manual fire; the mode they ask for."""
        if mode is not None and mode not in self.modes:
            known = ", ".join(self.modes)
            raise ConfigurationError(f"pipeline {self.name} has no mode {mode!r}; it has {known}")
        if not isinstance(force, bool):
            raise ConfigurationError(f"pipeline {self.name}: force={force!r} must be true or false")
        checked_id(trigger, f"pipeline {self.name}: trigger")
        return mode or self.modes[0]

    def check_installed(self) -> None:
        """Before a replica starts: sources need an HTTP client, which is an extra."""
        if self.sources:
            importlib.import_module("fencepost.pipeline.http")

    def checked_run_type(self, run_type: object) -> str:
        if run_type not in self.run_types:
            known = ", ".join(self.run_types)
            raise ConfigurationError(f"pipeline {self.name} has no run type {run_type!r}; it has {known}")
        return str(run_type)

    async def __call__(
        self, fire: Fire, mode: str | None = None, force: bool = False, trigger: str = MANUAL
    ) -> None:
        if not self.phases:
            raise ConfigurationError(
                f"pipeline {self.name} has no phases; declare one with @{self.name}.phase"
            )
        await PhaseWalk(self, fire, self.check_args(mode, force, trigger), force).walk()

    def _known(self, names: Sequence[str], known: Sequence[str] | Mapping[str, Any], what: str) -> None:
        if isinstance(names, str):
            raise ConfigurationError(f"pipeline {self.name}: write {what}s as a list: [{names!r}]")
        for name in names:
            if name not in known:
                hint = did_you_mean(name, known)
                raise ConfigurationError(f"pipeline {self.name} has no {what} {name!r}{hint}")

    def __repr__(self) -> str:
        return f"<Pipeline {self.name}: {', '.join(phase.name for phase in self.phases) or 'no phases'}>"


def _names(names: Sequence[str], what: str) -> tuple[str, ...]:
    if isinstance(names, str) or not names:
        raise ConfigurationError(f"{what} must be a list with at least one name")
    return tuple(checked_id(name, what) for name in names)


def _fits(function: Callable[..., Any], what: str) -> None:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(f"{what} is a generator: calling it runs nothing; return instead of yield")
    needed = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty and parameter.kind not in _ANY
    ]
    if len(needed) > 1 or any(parameter.kind is parameter.KEYWORD_ONLY for parameter in needed):
        raise ConfigurationError(f"{what} takes the run, or nothing")


_ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
