"""A replicated cron without writing Python: `fencepost run fencepost.toml`.

store = "sqlite:///jobs.db"

[jobs.backup]
command = ["pg_dump", "-f", "backup.sql", "app"]
cron = "30 2 * * *"
tz = "Europe/Zurich"
timeout = "30m"
retry = { attempts = 3, first = "10s" }
"""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from fencepost.errors import ConfigurationError
from fencepost.model.retry import Retry
from fencepost.model.triggers import Trigger, at, cron, every
from fencepost.scheduler.scheduler import Scheduler
from fencepost.settings import did_you_mean, duration

log = logging.getLogger("fencepost")

BOUNDS = ("start", "end")
TRIGGERS = {"every": ("anchor", *BOUNDS), "cron": ("tz", *BOUNDS), "at": ()}
"""The kinds, and what may stand beside each."""
POLICIES = (
    "args",
    "overlap",
    "misfire",
    "misfire_after",
    "timeout",
    "after_crash",
    "crash_attempts",
    "execute_on",
)
COMMAND = ("command", "shell", "env", "cwd")
KNOWN = (*TRIGGERS, "tz", "anchor", *BOUNDS, *POLICIES, *COMMAND, "retry")


def scheduler_from(path: Path) -> Scheduler:
    """The scheduler with the jobs of this file; its settings are the file's, too."""
    if path.name != "fencepost.toml":
        raise ConfigurationError(
            f"{path}: a job file is called fencepost.toml, so that its settings are found"
        )
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigurationError(f"{path} is not valid TOML: {error}") from None
    jobs = table.get("jobs")
    if not isinstance(jobs, Mapping) or not jobs:
        raise ConfigurationError(
            f'{path} has no jobs; add [jobs.hello] with command = ["echo", "hello"], every = "1m"'
        )
    scheduler = Scheduler(directory=path.parent)
    scheduler.reload = partial(read_again, scheduler)
    scheduler.job_file = path.absolute()  # not where a link leads: a deploy may let it lead elsewhere
    for id, job in jobs.items():
        try:
            _declare(scheduler, id, job, path.absolute().parent)
        except (ConfigurationError, TypeError) as error:
            raise ConfigurationError(f"{path}: [jobs.{id}]: {error}") from None
    return scheduler


def read_again(scheduler: Scheduler) -> None:
    """What the file says now holds. If it cannot be read, all goes on as it is."""
    path = scheduler.job_file
    assert path is not None
    try:
        fresh = scheduler_from(path)
    except ConfigurationError as error:
        log.error("the jobs go on as they are: %s", error)
        return
    new, changed, gone = scheduler.become(fresh)
    changes = [
        f"{len(ids)} {what} ({', '.join(sorted(ids))})"
        for what, ids in (("new", new), ("changed", changed), ("deleted", gone))
        if ids
    ]
    log.info("read %s again: %s", path, ", ".join(changes) or "nothing has changed")
    before, after = scheduler.settings, fresh.settings
    given = [field.name for field in fields(before) if field.name not in ("host", "port")]
    if differing := [name for name in given if getattr(before, name) != getattr(after, name)]:
        log.warning("other settings in %s take effect at the next start: %s", path, ", ".join(differing))


def _declare(scheduler: Scheduler, id: str, job: Any, folder: Path) -> None:
    if not isinstance(job, Mapping):
        raise ConfigurationError('must be a table, with command = ["…"] and every = "5m"')
    for name in job:
        if name not in KNOWN:
            raise ConfigurationError(f"there is no {name!r}{did_you_mean(name, KNOWN)}")
    if "command" not in job:
        raise ConfigurationError('lacks a command, as command = ["backup", "--all"]')
    policies = {name: job[name] for name in POLICIES if name in job}
    if "retry" in job:
        policies["retry"] = _retry(job["retry"])
    where = {name: job[name] for name in ("shell", "env") if name in job}
    cwd = str(folder / job.get("cwd", ""))
    scheduler.command(job["command"], _trigger(job), id=id, cwd=cwd, **where, **policies)


def _trigger(job: Mapping[str, Any]) -> Trigger:
    kinds = [kind for kind in TRIGGERS if kind in job]
    if len(kinds) != 1:
        raise ConfigurationError(
            'needs one of every = "5m", cron = "30 2 * * *" or at = [2026-12-24T18:00:00Z]'
        )
    [kind] = kinds
    value, options = job[kind], {name: job[name] for name in ("tz", "anchor", *BOUNDS) if name in job}
    for name in options:
        if name not in TRIGGERS[kind]:
            raise ConfigurationError(f"{name} does not go with {kind}")
    if kind == "every":
        return every(duration(value), **options)
    if kind == "cron":
        return cron(value, **options)
    moments = value if isinstance(value, list) else [value]
    if not all(isinstance(moment, datetime) for moment in moments):
        raise ConfigurationError("at must hold times with an offset, as 2026-12-24T18:00:00Z")
    return at(*moments)


def _retry(given: Any) -> Retry:
    if not isinstance(given, Mapping):
        raise ConfigurationError('retry must be a table, as { attempts = 3, first = "10s", cap = "5m" }')
    spans = {name: duration(given[name]).total_seconds() for name in ("first", "cap") if name in given}
    return Retry(**{**given, **spans})
