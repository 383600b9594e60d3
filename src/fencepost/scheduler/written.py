"""A job as it is written down: the words of `fencepost.toml`, the API, `fencepost jobs add` and the dashboard's form.

    {"task": "report", "cron": "30 2 * * *", "tz": "Europe/Zurich", "timeout": "30m", "tags": ["nightly"]}

A schedule is `every`, `cron`, `rrule`, `at` or `after` with its options, or `trigger` as the API gives it. All else are
the policies that `@scheduler.job` takes, read by the same functions (`declare.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from fencepost.errors import ConfigurationError
from fencepost.model import Job
from fencepost.model.retry import Retry
from fencepost.model.triggers import Calendar, Trigger, at, cron, every, rrule, trigger_from_json
from fencepost.model.triggers.following import After
from fencepost.scheduler.declare import POLICIES
from fencepost.settings import did_you_mean, duration

BOUNDS = ("start", "end")
DAYS = ("calendar", "closed")
OPTIONS = ("tz", "anchor", "on", *BOUNDS, *DAYS)
TRIGGERS = {
    "every": ("anchor", *BOUNDS, *DAYS),
    "cron": ("tz", *BOUNDS, *DAYS),
    "rrule": ("tz", *BOUNDS, *DAYS),
    "at": DAYS,
    "after": ("on",),
}
"""The kinds, and what may stand beside each."""
SCHEDULE = (*TRIGGERS, *OPTIONS, "trigger")
WORDS = ("task", *SCHEDULE, *POLICIES)


Build = Callable[[Any, Mapping[str, Any]], Job]
"""Of a trigger, or None, and policies."""


def job_from(given: Mapping[str, Any], build: Build, folder: Path, before: Job | None = None) -> Job:
    """The job that is written down. `before`: what it is a change of; null brings a policy back to its default.
    `folder`: where calendars are described."""
    policies = (
        {} if before is None else {name: getattr(before, name) for name in POLICIES if name != "spread"}
    )
    policies |= {name: given[name] for name in POLICIES if name in given}
    policies = {name: value for name, value in policies.items() if value is not None}
    if isinstance(policies.get("retry"), Mapping):
        policies["retry"] = retry_of(policies["retry"])
    trigger = before.trigger if before else None
    if any(name in given for name in SCHEDULE):
        trigger = schedule_of(given, folder)
    elif policies.get("spread") is not None:
        raise ConfigurationError("spread goes with a schedule; give that, too")
    return build(trigger, policies)


def check_words(given: Mapping[str, Any], known: Iterable[str]) -> None:
    if not isinstance(given, Mapping):
        raise ConfigurationError('a job is an object, as {"task": "report", "every": "5m"}')
    if "command" in given and "command" not in known:
        raise ConfigurationError(
            "a command cannot be stored with a job: every caller that may write here could run anything. Declare it in "
            "fencepost.toml or with scheduler.command, and name it as the task"
        )
    for name in given:
        if name not in known:
            raise ConfigurationError(f"there is no {name!r}{did_you_mean(str(name), known)}")


def schedule_of(given: Mapping[str, Any], folder: Path) -> Trigger | None:
    """None: it runs when triggered."""
    words = {name: given[name] for name in SCHEDULE if given.get(name) is not None}
    if not words and "trigger" in given:
        return None
    if "trigger" in words:
        if len(words) > 1:
            raise ConfigurationError(f"give trigger, or {' and '.join(sorted(words.keys() - {'trigger'}))}")
        given_trigger = words["trigger"]
        return given_trigger if isinstance(given_trigger, Trigger) else trigger_from_json(given_trigger)
    return trigger_of(words, folder)


def trigger_of(words: Mapping[str, Any], folder: Path) -> Trigger:
    trigger = _nominal(words)
    if "calendar" in words:
        return trigger.on(Calendar.load(words["calendar"], folder), words.get("closed", "exclude"))
    if "closed" in words:
        raise ConfigurationError('closed goes with a calendar, as calendar = "zurich"')
    return trigger


def _nominal(words: Mapping[str, Any]) -> Trigger:
    kinds = [kind for kind in TRIGGERS if kind in words]
    if len(kinds) != 1:
        raise ConfigurationError(
            'needs one of every = "5m", cron = "30 2 * * *", rrule = "FREQ=MONTHLY;BYDAY=-1FR", '
            'at = [2026-12-24T18:00:00Z] or after = ["extract"]'
        )
    [kind] = kinds
    value, options = words[kind], {name: words[name] for name in OPTIONS if name in words}
    for name in options:
        if name not in TRIGGERS[kind]:
            raise ConfigurationError(f"{name} does not go with {kind}")
    options = {name: option for name, option in options.items() if name not in DAYS}
    options |= {name: _moment(options[name], name) for name in ("anchor", *BOUNDS) if name in options}
    if kind == "every":
        return every(duration(value), **options)
    if kind == "cron":
        return cron(_text(value, kind), **options)
    if kind == "after":
        return After(_ids(value), options.get("on", "succeeded"))
    if kind == "rrule":
        if "start" not in options:
            raise ConfigurationError("rrule needs a start, as start = 2026-11-27T17:00:00+01:00")
        return rrule(_text(value, kind), **options)
    moments = value if isinstance(value, list) else [value]
    return at(*(_moment(moment, "at") for moment in moments))


def _ids(value: Any) -> tuple[str, ...]:
    ids = value if isinstance(value, list) else [value]
    return tuple(_text(id, "after") for id in ids)


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise ConfigurationError(f"{name} must be a text, not {value!r:.60}")
    return value


def _moment(value: Any, name: str) -> datetime:
    """TOML has times, JSON writes them as texts."""
    if isinstance(value, str):
        with suppress(ValueError):
            value = datetime.fromisoformat(value)
    if not isinstance(value, datetime) or value.tzinfo is None:
        what = "hold times with an offset" if name == "at" else "be a time with an offset"
        raise ConfigurationError(f"{name} must {what}, as 2026-12-24T18:00:00Z")
    return value


def retry_of(given: Any) -> Retry:
    if not isinstance(given, Mapping):
        raise ConfigurationError('retry must be a table, as { attempts = 3, first = "10s", cap = "5m" }')
    spans = {name: duration(given[name]).total_seconds() for name in ("first", "cap") if name in given}
    try:
        return Retry(**{**given, **spans})
    except TypeError as error:
        raise ConfigurationError(f"retry: {error}") from None
