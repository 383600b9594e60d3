"""Durable retry: how often, how long between, after which exceptions. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fencepost.errors import ConfigurationError, RaisedElsewhere


@dataclass(frozen=True, slots=True)
class Retry:
    """Run a failing fire again, `attempts` times in all, waiting `first` seconds, then `factor` times longer
    each time, at most `cap` seconds. `jitter` (0 to 1) is the share of each wait that is left to chance,
    so that a thousand jobs that failed together do not come back together.

    `on` limits it to these exceptions and their subclasses; given as classes or as names, kept as names.
    """

    attempts: int = 3
    first: float = 1.0
    factor: float = 2.0
    cap: float = 300.0
    jitter: float = 0.5
    on: tuple[str | type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        given: Any = self.on
        several = given if isinstance(given, tuple | list) else (given,)
        for name in ("attempts", "first", "factor", "cap", "jitter"):
            value, kind = getattr(self, name), int if name == "attempts" else int | float
            if not isinstance(value, kind) or isinstance(value, bool):
                raise ConfigurationError(f"Retry({name}={value!r}): give a number")
        object.__setattr__(self, "on", tuple(_exception_name(each) for each in several))
        if not 1 <= self.attempts <= 1000:
            raise ConfigurationError(f"Retry(attempts={self.attempts}): give a number between 1 and 1000")
        if not 0 < self.first <= self.cap <= 30 * 86400:
            raise ConfigurationError(
                f"Retry(first={self.first}, cap={self.cap}): both in seconds, 0 < first <= cap <= 30 days"
            )
        if not 1 <= self.factor <= 100:
            raise ConfigurationError(f"Retry(factor={self.factor}): give a number between 1 and 100")
        if not 0 <= self.jitter <= 1:
            raise ConfigurationError(f"Retry(jitter={self.jitter}): a share between 0 and 1")

    def delay_after(self, attempt: int, chance: random.Random) -> float | None:
        """Seconds to wait after the failed attempt number `attempt` (1, 2, …); None: give up."""
        if attempt >= self.attempts:
            return None
        # The exponent is bounded: factor ** 999 would overflow long before the cap applies.
        grown = min(self.cap, self.first * self.factor ** min(attempt - 1, 64))
        return grown * (1 - self.jitter * chance.random())

    def covers(self, error: BaseException) -> bool:
        return not self.on or not exception_names(error).isdisjoint(self.on)

    def to_json(self) -> dict[str, Any]:
        return {
            "attempts": self.attempts,
            "first": self.first,
            "factor": self.factor,
            "cap": self.cap,
            "jitter": self.jitter,
            "on": list(self.on),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Retry:
        return cls(**{**value, "on": tuple(value["on"])})


def exception_names(error: BaseException) -> frozenset[str]:
    """Under which `Retry(on=…)` finds it: its class and its bases, with and without their modules."""
    if isinstance(error, RaisedElsewhere):
        return frozenset(error.names)
    kinds = [kind for kind in type(error).__mro__ if issubclass(kind, BaseException)]
    names = {name for kind in kinds for name in (_exception_name(kind), kind.__name__)}
    return frozenset(names | {former for former, name in _FORMERLY.items() if name in names})


_FORMERLY = {
    "fencepost.bodies.command.CommandFailed": "fencepost.errors.CommandFailed",
    "fencepost.bodies.process.BodyDied": "fencepost.errors.BodyDied",
}
"""Names of 0.1, which jobs in a store may hold."""


def _exception_name(given: Any) -> str:
    if isinstance(given, str) and given:
        return given
    if isinstance(given, type) and issubclass(given, BaseException):
        module = "" if given.__module__ == "builtins" else f"{given.__module__}."
        return f"{module}{given.__qualname__}"
    raise ConfigurationError(f"Retry(on={given!r}): give exception classes, or their names as text")
