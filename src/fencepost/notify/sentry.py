"""`sentry(dsn)`: each run checks in with Sentry Crons, which makes a monitor per job from its trigger."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from fencepost.clock import Clock, SystemClock
from fencepost.errors import ConfigurationError
from fencepost.model.notices import EVERY_RUN, Causes, Notice
from fencepost.model.triggers import from_iso, iso
from fencepost.model.values import Json, json_text
from fencepost.notify.http import TIMEOUT, USER_AGENT, Target, post
from fencepost.notify.runs import Step, run_id, slug_of, step_of
from fencepost.notify.sending import checked_name, checked_seconds, is_text

LONGEST_SLUG = 50
STATUSES: Mapping[Step, str] = {"started": "in_progress", "succeeded": "ok", "failed": "error"}
"""A fire that was missed or lost is an `error`: Sentry accepts `missed` from no client."""
UNITS = (("week", 604_800), ("day", 86_400), ("hour", 3_600), ("minute", 60))


def sentry(
    dsn: str,
    *,
    environment: str = "production",
    checkin_margin: int | None = None,
    max_runtime: int | None = None,
    name: str = "sentry",
    timeout: object = TIMEOUT,
) -> Sentry:
    """`checkin_margin`, `max_runtime`: minutes, for the monitors. Left out, Sentry's own settings hold."""
    endpoint, key = _endpoint(dsn)
    if not is_text(environment, r"[^\s/]{1,64}") or environment == "None":
        raise ConfigurationError(
            f"environment {environment!r} is not usable; give up to 64 letters, no / or space"
        )
    for what, minutes in (("checkin_margin", checkin_margin), ("max_runtime", max_runtime)):
        if minutes is not None and (type(minutes) is not int or not 1 <= minutes <= 10_080):
            raise ConfigurationError(f"{what} is {minutes!r}; give 1 to 10080 minutes, or leave it out")
    options = {"checkin_margin": checkin_margin, "max_runtime": max_runtime}
    given = {what: minutes for what, minutes in options.items() if minutes is not None}
    return Sentry(checked_name(name), endpoint, key, environment, given, checked_seconds(timeout))


@dataclass(frozen=True)
class Sentry:
    name: str
    endpoint: Target
    key: str = field(repr=False)
    environment: str = "production"
    options: Mapping[str, int] = field(default_factory=dict)
    timeout: float = TIMEOUT
    clock: Clock = field(default_factory=SystemClock, repr=False, compare=False)
    causes: Causes = EVERY_RUN

    async def deliver(self, notices: Sequence[Notice]) -> None:
        for notice in notices:
            if (
                notice.cause == "test"
            ):  # a monitor that does not exist: Sentry checks the key and drops the rest
                await self._send(self._check_in(notice, "succeeded"))
            elif (step := step_of(notice)) is not None:
                await self._send({**self._check_in(notice, step), **self._monitor(notice)})

    async def _send(self, check_in: Mapping[str, Json]) -> None:
        payload = json_text(check_in).encode()
        head = {"sent_at": iso(self.clock.wall())}
        item = {"type": "check_in", "length": len(payload), "content_type": "application/json"}
        envelope = b"\n".join((json_text(head).encode(), json_text(item).encode(), payload, b""))
        auth = f"Sentry sentry_version=7, sentry_client={USER_AGENT}, sentry_key={self.key}"
        headers = {"Content-Type": "application/x-sentry-envelope", "X-Sentry-Auth": auth}
        await post(self.endpoint, envelope, headers, self.timeout, (self.key,))

    def _check_in(self, notice: Notice, step: Step) -> dict[str, Json]:
        check_in: dict[str, Json] = {
            "check_in_id": run_id(notice, self.environment).hex,
            "monitor_slug": slug_of(notice.job_id, LONGEST_SLUG),
            "status": STATUSES[step],
            "environment": self.environment,
        }
        if step != "started" and (seconds := _duration(notice)) is not None:
            check_in["duration"] = seconds
        return check_in

    def _monitor(self, notice: Notice) -> dict[str, Json]:
        """With this Sentry makes the monitor, or changes it when the trigger has changed."""
        trigger = notice.details.get("trigger")
        config = schedule_of(trigger) if isinstance(trigger, Mapping) else None
        return {} if config is None else {"monitor_config": {**config, **self.options}}


def schedule_of(trigger: Mapping[str, Json]) -> dict[str, Json] | None:
    """A trigger, as data, in Sentry's form. None where it has none: its monitors know minutes, and cron or interval."""
    if trigger.get("type") == "cron":
        expression, zone = str(trigger.get("expression")), str(trigger.get("tz", "UTC"))
        five = len(expression.split()) == 5
        return {"schedule": {"type": "crontab", "value": expression}, "timezone": zone} if five else None
    seconds = trigger.get("seconds") if trigger.get("type") == "every" else None
    if not isinstance(seconds, int) or seconds < 60:
        return None
    for unit, length in UNITS:
        if seconds % length == 0:
            return {"schedule": {"type": "interval", "value": seconds // length, "unit": unit}}
    return None


def _duration(notice: Notice) -> float | None:
    """Seconds that the run took."""
    started = notice.details.get("started_at")
    try:
        seconds = (notice.at - from_iso(started)).total_seconds() if isinstance(started, str) else -1.0
    except ValueError:
        return None
    return seconds if seconds >= 0 else None


def _endpoint(dsn: object) -> tuple[Target, str]:
    """`https://KEY@HOST/PROJECT`: where envelopes go, and the key."""
    problem = ConfigurationError("dsn must be a Sentry DSN, such as https://KEY@o1.ingest.sentry.io/42")
    if not isinstance(dsn, str):
        raise problem
    try:
        parts = urlsplit(dsn)
        host, key = parts.hostname, parts.username
        place = f"{f'[{host}]' if host and ':' in host else host}" + (f":{parts.port}" if parts.port else "")
    except ValueError:
        raise problem from None
    path, _, project = parts.path.rpartition("/")
    if (
        not host
        or not key
        or not re.fullmatch(r"[A-Za-z0-9]{1,100}", key)
        or not re.fullmatch(r"[0-9]{1,20}", project)
    ):
        raise problem
    return Target.of(f"{parts.scheme}://{place}{path}/api/{project}/envelope/", "dsn"), key
