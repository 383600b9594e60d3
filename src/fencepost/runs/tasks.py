"""Tasks: runnable code known to a replica under a name, and how its arguments are fitted."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fencepost.errors import ConfigurationError, UsageError
from fencepost.model import Json, checked_id
from fencepost.model.values import clean_json
from fencepost.runs import arguments
from fencepost.runs.resources import Resource

if TYPE_CHECKING:
    from fencepost.runs.fire import Fire


@dataclass(frozen=True, slots=True)
class Task:
    name: str
    function: Callable[..., Any]
    is_async: bool
    fire_parameter: str | None
    """The parameter named `fire`, or annotated `Fire`: it gets the Fire."""
    parameters: frozenset[str]
    required: frozenset[str]
    takes_any: bool
    in_process: bool = False
    """Its body runs in a process of its own, which is killed on timeout, cancel or fencing."""
    resources: Mapping[str, Resource] = field(default_factory=dict)
    """By the names of the parameters that get them."""
    models: Mapping[str, Any] = field(default_factory=dict)
    """By parameter: the dataclass or pydantic model that its argument is handed over as."""
    engine: str | None = None
    """Which engine its jobs run on, unless they say otherwise."""
    engine_options: Mapping[str, Json] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        name: str | None = None,
        executor: str | None = None,
        resources: Mapping[str, Resource] | None = None,
    ) -> Task:
        if not callable(function):
            raise ConfigurationError(f"{function!r} is not callable; decorate a function")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigurationError(
                f"{function!r} is a generator: calling it runs nothing; return instead of yield"
            )
        if name is None:
            name = str(getattr(function, "__qualname__", type(function).__qualname__))
            # A function inside a function is called outer.<locals>.inner: brackets are no part of an id.
            name = name.replace("<locals>.", "").replace("<lambda>", "lambda")
        checked_id(name, "task name")
        if executor not in (None, "process"):
            raise ConfigurationError(
                f'task {name}: executor={executor!r} is not known; use "process", or the name of an engine, '
                "or leave it out: a coroutine runs on the event loop, a function in a thread"
            )
        if executor == "process" and "<" in getattr(function, "__qualname__", "<"):  # <lambda>, <locals>
            raise ConfigurationError(
                f"task {name}: a process finds a function by its name; define it at the top of a module"
            )
        fire_parameter, parameters, required, takes_any = None, set(), set(), False
        wanted: dict[str, Resource] = {}
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                takes_any = True
            elif parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                raise ConfigurationError(
                    f"task {name}: parameter {parameter.name!r} is positional-only; "
                    "arguments are passed by name, remove the '/'"
                )
            elif _wants_fire(parameter):
                fire_parameter = parameter.name
            elif resources and parameter.name in resources:
                wanted[parameter.name] = resources[parameter.name]
            elif parameter.kind is not inspect.Parameter.VAR_POSITIONAL:
                parameters.add(parameter.name)
                if parameter.default is inspect.Parameter.empty:
                    required.add(parameter.name)
        if wanted and executor == "process":
            raise ConfigurationError(
                f"task {name}: resources cannot be handed to another process; open {', '.join(wanted)} in the function"
            )
        return cls(
            name,
            function,
            _is_async(function),
            fire_parameter,
            frozenset(parameters),
            frozenset(required),
            takes_any,
            executor == "process",
            wanted,
            {each: model for each, model in arguments.models_of(function).items() if each in parameters},
        )

    def check(self, args: Any, what: str) -> dict[str, Json]:
        """A copy of `args` as JSON if they fit the function; a clear error otherwise."""
        checked = checked_args(args, what)
        missing = sorted(self.required - set(checked))
        unknown = [] if self.takes_any else sorted(set(checked) - self.parameters)
        if missing or unknown:
            takes = ", ".join(sorted(self.parameters)) or "no arguments"
            problem = f"lacks {', '.join(missing)}" if missing else f"has no parameter {', '.join(unknown)}"
            raise ConfigurationError(f"{what}: task {self.name} {problem}; it takes {takes}")
        arguments.check(self.models, checked, what)
        if (check := getattr(self.function, "check_args", None)) is not None:
            check(**checked)
        return checked

    @property
    def args_schema(self) -> Json:
        """JSON schema of its arguments."""
        return arguments.schema_of(self.function, self.parameters, self.required, self.takes_any)

    def keywords(self, fire: Fire, resources: Mapping[str, Any] | None = None) -> dict[str, Any]:
        bound: dict[str, Any] = {**arguments.converted(self.models, fire.args), **(resources or {})}
        if self.fire_parameter:
            bound[self.fire_parameter] = fire
        return bound


def checked_args(args: Any, what: str) -> dict[str, Json]:
    """A copy of `args` as JSON by parameter name."""
    if not isinstance(args, Mapping) or not all(isinstance(name, str) for name in args):
        raise ConfigurationError(f'{what}: args must be a dictionary by parameter name, as {{"user": 42}}')
    plain = {name: arguments.plain(value) for name, value in args.items()}
    cleaned: dict[str, Json] = clean_json(plain, f"arguments of {what}")
    return cleaned


class Registry:
    """The tasks a replica knows."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}

    def add(self, task: Task) -> Task:
        known = self._tasks.get(task.name)
        if known is not None and known.function is not task.function:
            raise ConfigurationError(
                f"two functions are called {task.name}; give one of them another name with id="
            )
        self._tasks[task.name] = task
        return task

    def replace(self, task: Task) -> None:
        self._tasks[task.name] = task

    def drop(self, name: str) -> None:
        """Not known any more."""
        self._tasks.pop(name, None)

    def __contains__(self, name: str) -> bool:
        return name in self._tasks

    def get(self, name: str) -> Task:
        task = self._tasks.get(name)
        if task is None:
            raise UsageError(f"no task is called {name!r}; known: {', '.join(sorted(self._tasks)) or 'none'}")
        return task

    def find(self, function: Callable[..., Any]) -> Task | None:
        return next((task for task in self._tasks.values() if _stands_for(task.function) is function), None)

    def check_installed(self) -> None:
        """Raise a `ConfigurationError` if a task needs a package that this host lacks."""
        for task in self._tasks.values():
            if (check := getattr(task.function, "check_installed", None)) is not None:
                check()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._tasks))


def _stands_for(function: Any) -> Any:
    """What was declared: the function itself, or what an integration runs it for."""
    return getattr(function, "stands_for", function)


def _is_async(function: Any) -> bool:
    """An object with an async `__call__` counts as well."""
    return any(inspect.iscoroutinefunction(each) for each in (function, type(function).__call__))


def _wants_fire(parameter: inspect.Parameter) -> bool:
    annotation = parameter.annotation
    if isinstance(annotation, str):
        return parameter.name == "fire" or annotation.split(".")[-1] == "Fire"
    return parameter.name == "fire" or getattr(annotation, "__name__", "") == "Fire"
