"""What can go wrong, and the exit code the command line answers with.

Only breakage raises. Losing a race is an ordinary reply (`None`, `False`, an empty list).
Every message names the remedy.
"""

from __future__ import annotations

from collections.abc import Sequence


class FencepostError(Exception):
    """Anything Fencepost raises on purpose."""

    exit_code = 1


class ConfigurationError(FencepostError, ValueError):
    """A setting, a trigger or a job definition that cannot work. Found before anything runs."""

    exit_code = 78


class NothingStored(ConfigurationError):
    """A namespace that does not exist, asked for by a command that creates none."""

    def __init__(self, place: str, namespace: str, namespaces: Sequence[str]) -> None:
        """`namespaces`: those that exist in the same place."""
        shown = ", ".join(namespaces[:NAMESPACES_SHOWN]) + (
            ", …" if len(namespaces) > NAMESPACES_SHOWN else ""
        )
        there = f"namespaces there: {shown}" if namespaces else "nothing of Fencepost is there yet"
        super().__init__(f"namespace {namespace!r} holds nothing in {place}; {there}")
        self.namespaces = tuple(namespaces)


NAMESPACES_SHOWN = 20


class NotStorable(ConfigurationError, TypeError):
    """A value that no store can keep, such as a set or an open file. Raised where it is handed in."""


def missing_extra(what: str, error: ImportError, extra: str) -> ConfigurationError:
    """`error`: of the import that failed."""
    return ConfigurationError(
        f"{what} needs what is not installed ({error}): pip install 'fencepost[{extra}]'"
    )


class UsageError(FencepostError, ValueError):
    """A call or a command line that does not fit: an unknown job, a missing module or attribute."""

    exit_code = 64


class NotFound(UsageError):
    """There is no such job, fire or backfill."""

    def __init__(self, text: str, hint: str = "") -> None:
        """`hint`: what may have been meant. The service leaves it out: it may name a job that the caller must not
        see."""
        super().__init__(text + hint)
        self.text = text


class QueueFull(UsageError):
    """As many fires of the job wait for their turn as may. Later there is room again."""


class Conflict(UsageError):
    """What is asked for contradicts what is on record: an idempotency key that was used for something else, or a
    retry of a success that does not say `again`."""


class StoreUnavailable(FencepostError):
    """The store did not answer. What was asked may have been committed all the same."""

    exit_code = 69


class StoreUnusable(StoreUnavailable, ConfigurationError):
    """The store's path cannot be written, and waiting does not help: a start that meets this is given up."""


class StoreCorrupt(FencepostError):
    """The store answered, but what it holds cannot be trusted. Nothing is run from it."""

    exit_code = 78


class AnotherRunIsActive(FencepostError):
    """A manual trigger with `if_active="refuse"` met a run that has not ended."""

    exit_code = 2


class RunFailed(FencepostError):
    """`handle.result()` of a fire that has not succeeded: it failed, or was cancelled, lost, skipped or missed."""

    def __init__(self, text: str, state: str) -> None:
        super().__init__(text)
        self.state = state
        """How the fire ended."""


class FencedOut(FencepostError):
    """This run's token is no longer the current one: another attempt, or none, owns the fire."""


class EffectCommitted(FencepostError):
    """An earlier attempt has committed this effect of the fire. Unhandled it ends the run as succeeded."""


class PartCommitted(EffectCommitted):
    """The same for one of several effects of the fire, one with a name. Unhandled it fails the run: it is not
    known whether the others have happened, too."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self.name = name


class RunCancelled(FencepostError):
    """This run was cancelled on request."""


class RaisedElsewhere(FencepostError):
    """What a function raised in a process of its own, as text: the traceback of that process."""

    def __init__(self, text: str, names: Sequence[str], kind: str = "", message: str = "") -> None:
        super().__init__(text)
        self.names = tuple(names)
        """Of its class and that one's bases."""
        self.kind = kind
        """The name of its class."""
        self.message = message or text.strip().rpartition("\n")[2]


class CommandFailed(FencepostError):
    """A command could not be started, or its exit code is not 0. The message holds the end of its output."""

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code
        """Its exit code; None: it could not be started."""

    @property
    def line(self) -> str:
        """`exit code 3: the last line of its output`."""
        lines = [line.strip() for line in str(self).splitlines() if line.strip()]
        return lines[0] if len(lines) < 2 else f"{lines[0]}: {lines[-1]}"


class BodyDied(FencepostError):
    """The process of a function ended without a word: killed, or out of memory."""


class DeliveryFailed(FencepostError):
    """A channel could not deliver a notice."""

    def __init__(self, reason: str, *, permanent: bool = False, retry_after: float | None = None) -> None:
        """`reason`: holds no secret, thus no URL."""
        super().__init__(reason)
        self.reason = reason
        self.permanent = permanent
        """This very notice is refused, and sending it again cannot help. A wrong password is not permanent: a person
        may correct it."""
        self.retry_after = retry_after
        """Seconds for which the receiver asks not to be called."""


class Fork(FencepostError):
    """A scheduler or memory store crossed `os.fork()`; it must be started in the child instead."""
