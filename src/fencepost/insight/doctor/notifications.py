"""Notifications: does each channel deliver, and does the leader have it?"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from fencepost.insight.doctor.finding import Finding, ok, problem, warning
from fencepost.insight.notices import channel_names, channel_shape
from fencepost.insight.views.shapes import Shape
from fencepost.store.outbox import Outbox
from fencepost.store.rules.outbox import MOST_WAITING

STUCK_AFTER = timedelta(minutes=15)


def notifications(found: Outbox, leader: str | None, now: datetime) -> Iterator[Finding]:
    """Nothing, where no rule was ever declared. `leader`: the replica that leads."""
    sound = True
    for name in channel_names(found):
        for finding in _channel(channel_shape(found, name), found, leader, now):
            sound = False
            yield finding
    if found.rules and sound:
        number = len(found.rules)
        yield ok(
            f"{number} notification rule{'s' if number > 1 else ''}, {sum(found.waiting.values())} notices wait"
        )


def _channel(shape: Shape, found: Outbox, leader: str | None, now: datetime) -> Iterator[Finding]:
    name, waiting = shape["name"], shape["waiting"]
    if leader is not None and shape["delivered_by"] != leader and (shape["rules"] or waiting):
        yield problem(
            f"the leader {leader} has no channel {name}: {waiting} notices wait",
            f"start all replicas with the code that declares it, or remove its rules: `fencepost notify forget {name}`",
        )
    elif shape["error"]:
        yield problem(
            f"channel {name} has failed since {shape['failing_since']}: {shape['error']}; {waiting} notices wait",
            f"`fencepost notify test {name}` tries it; what waits is delivered when it works again",
        )
    elif _oldest(found, name) is not None and now - (_oldest(found, name) or now) > STUCK_AFTER:
        yield warning(
            f"channel {name}: a notice has waited since {_oldest(found, name):%Y-%m-%d %H:%M}",
            "quiet hours or a digest may hold it; otherwise the logs of the leader say why",
        )
    if waiting > MOST_WAITING:
        yield problem(
            f"channel {name}: more than {MOST_WAITING} notices wait; further ones are only counted",
            f"mend the receiver, or drop them: `fencepost notify drop {name}`",
        )
    if shape["set_aside"]:
        yield warning(
            f"channel {name}: {shape['set_aside']} notices could not be delivered and were set aside",
            f"`fencepost notify list --aside` shows them, `fencepost notify retry {name}` tries again",
        )


def _oldest(found: Outbox, channel: str) -> datetime | None:
    """Of the page that was read."""
    return min((each.notice.at for each in found.notices if each.channel == channel), default=None)


def leader_of(status: Shape) -> str | None:
    leader: str | None = status["leader"]["replica"] if status["leader"] else None
    return leader
