"""What a reader makes of a file: jobs that can be carried over, and entries that cannot."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from fencepost import Trigger

MOST_ENTRIES = 2000
"""Per file. More is no list that a person maintains."""
MOST_BYTES = 2_000_000
LONGEST_SECONDS = 366 * 24 * 3600
"""Of a policy: what a job may have at most."""


class OldCalendar(Protocol):
    """The fires of the old system, by its own rules."""

    def after(self, moment: datetime) -> Iterator[datetime]:
        """The fires strictly after `moment`, in UTC, strictly increasing."""


@dataclass(frozen=True)
class Note:
    """Something of an entry that is not carried over, or not exactly."""

    what: str
    why: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}; {self.remedy}"


class CannotCarryOver(Exception):
    """An entry, or a part of it, that cannot be carried over. Readers turn it into a `NotCarriedOver`."""

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(f"{why}; {remedy}")
        self.why = why
        self.remedy = remedy


@dataclass(frozen=True)
class ShellCommand:
    """A list of words, or one text for /bin/sh."""

    command: str | Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None

    def __post_init__(self) -> None:
        words = [self.command] if isinstance(self.command, str) else self.command
        if not words or not words[0]:
            raise CannotCarryOver("its command is empty", "name a program")
        if any("\0" in text for text in (*words, *self.env, *self.env.values(), self.cwd or "")):
            raise CannotCarryOver("its command holds a zero byte, which no system passes on", "remove it")


@dataclass(frozen=True)
class FunctionCall:
    """A call of a function: `from module import function`, then `function(*args, **kwargs)`."""

    module: str
    function: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    is_async: bool = False


@dataclass(frozen=True)
class Send:
    """A message to Celery's workers: `app.send_task(task, args, kwargs, **options)`."""

    task: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    app: str | None = None
    """`module:attribute` of the Celery app; None: the current one."""


Body = ShellCommand | FunctionCall | Send


@dataclass(frozen=True)
class Carried:
    """An entry that becomes a job."""

    id: str
    origin: str
    """Where it stands: `line 12`, `CronJob shop/report`."""
    schedule: str
    """The old schedule as it was written."""
    old: OldCalendar
    trigger: Trigger
    body: Body
    tz: str = "UTC"
    policies: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True)
class NotCarriedOver:
    """An entry that becomes no job."""

    origin: str
    text: str
    why: str
    remedy: str


@dataclass(frozen=True)
class Imported:
    """All of one file."""

    jobs: tuple[Carried, ...]
    left_out: tuple[NotCarriedOver, ...] = ()
    notes: tuple[Note, ...] = ()
    """What holds for all of them."""


class JobIds:
    """Ids for jobs, made of what the old system calls them. Equal ones are numbered."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def id_for(self, text: str, otherwise: str = "job") -> str:
        base = re.sub(r"[^A-Za-z0-9_.:-]+", "-", text).strip("-.:")[:180] or otherwise
        id, number = base, 1
        while id in self._taken:
            number += 1
            id = f"{base}-{number}"
        self._taken.add(id)
        return id
