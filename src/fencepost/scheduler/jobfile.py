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
from functools import partial
from pathlib import Path
from typing import Any

from fencepost.errors import ConfigurationError, UsageError
from fencepost.scheduler.declare import POLICIES
from fencepost.scheduler.scheduler import Scheduler
from fencepost.scheduler.written import OPTIONS, TRIGGERS, check_words, retry_of, trigger_of

log = logging.getLogger("fencepost")

COMMAND = ("command", "shell", "env", "cwd")
KNOWN = (*TRIGGERS, *OPTIONS, *POLICIES, *COMMAND)


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
    scheduler.declared.job_file = (
        path.absolute()
    )  # not where a link leads: a deploy may let it lead elsewhere
    for id, job in jobs.items():
        try:
            _declare(scheduler, id, job, path.absolute().parent)
        except (ConfigurationError, TypeError) as error:
            raise ConfigurationError(f"{path}: [jobs.{id}]: {error}") from None
    for number, table_of in enumerate(table.get("notify", []), 1):
        try:
            _notify(scheduler, table_of)
        except (ConfigurationError, UsageError, TypeError) as error:
            raise ConfigurationError(f"{path}: [[notify]] number {number}: {error}") from None
    return scheduler


def _notify(scheduler: Scheduler, table: Any) -> None:
    from fencepost.notify.causes import causes_from
    from fencepost.notify.config import channel_from

    if not isinstance(table, Mapping):
        raise ConfigurationError('must be a table, with channel = "webhook" and its url')
    channel = channel_from(table)
    on = causes_from(table["on"]) if "on" in table else None
    scheduler.notify(
        channel, on=on, jobs=table.get("jobs"), quiet=table.get("quiet"), digest=table.get("digest")
    )


def read_again(scheduler: Scheduler) -> None:
    """What the file says now holds. If it cannot be read, all goes on as it is."""
    path = scheduler.job_file
    assert path is not None
    try:
        fresh = scheduler_from(path)
    except ConfigurationError as error:
        log.error("the jobs go on as they are: %s", error)
        return
    if scheduler.notifications.differs_from(fresh.notifications):
        log.warning("[[notify]] has changed in %s: that takes a restart", path)
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
    check_words(job, KNOWN)
    if "command" not in job:
        raise ConfigurationError('lacks a command, as command = ["backup", "--all"]')
    policies = {name: job[name] for name in POLICIES if name in job}
    if "retry" in policies:
        policies["retry"] = retry_of(policies["retry"])
    where = {name: job[name] for name in ("shell", "env") if name in job}
    cwd = str(folder / job.get("cwd", ""))
    scheduler.command(job["command"], trigger_of(job, folder), id=id, cwd=cwd, **where, **policies)
