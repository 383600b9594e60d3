"""The channels of a scheduler, and the rules it declares for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fencepost.errors import ConfigurationError, UsageError
from fencepost.model.notices import Causes, Notice
from fencepost.model.selection import parsed
from fencepost.model.watching import NotificationRule, checked_causes
from fencepost.replica.notifier import Subscription
from fencepost.settings import did_you_mean, duration
from fencepost.store.base import Store
from fencepost.store.outbox import Outbox, OutboxQuery

if TYPE_CHECKING:
    from fencepost.notify.channel import Channel

NO_CAUSES: Causes = frozenset()
"""A channel without a rule of its own: for those made by hand."""


class Notifications:
    def __init__(self) -> None:
        self.channels: dict[str, Channel] = {}
        self._rules: dict[str, list[NotificationRule]] = {}
        self.kept: list[Notice] | None = None
        """Where a test gathers notices, in place of their delivery."""

    def add(
        self, channel: Channel, on: Causes | None, jobs: str | None, quiet: str | None, digest: object
    ) -> None:
        name = getattr(channel, "name", None)
        if not isinstance(name, str) or not callable(getattr(channel, "deliver", None)):
            raise ConfigurationError(
                f"{channel!r:.100} is no channel; give one of fencepost.notify, such as webhook(url, secret=…), "
                "or call(function)"
            )
        causes = channel.causes if on is None else frozenset(on)
        rules = [_rule(name, causes, jobs, quiet, digest)] if causes != NO_CAUSES else []
        if self.channels.setdefault(name, channel) != channel:
            raise ConfigurationError(
                f"there are two channels called {name!r}; give one of them another name="
            )
        self._rules.setdefault(name, []).extend(rules)

    def differs_from(self, other: Notifications) -> bool:
        return (self.channels, self._rules) != (other.channels, other._rules)

    def subscriptions(self) -> tuple[Subscription, ...]:
        return tuple(
            Subscription(self._stand_in(channel), tuple(self._rules[name]))
            for name, channel in self.channels.items()
        )

    def _stand_in(self, channel: Channel) -> Channel:
        return channel if self.kept is None else KeptNotices(channel.name, channel.causes, self.kept)


def _rule(
    channel: str,
    on: Causes,
    jobs: str | None,
    quiet: str | None,
    digest: object,
    name: str = "",
    by: str = "",
) -> NotificationRule:
    if jobs is not None:
        parsed(jobs)
    seconds = duration(digest).total_seconds() if digest is not None else 0.0
    return NotificationRule(channel, checked_causes(on), jobs or "", quiet or "", seconds, name, by)


async def make_rule(
    store: Store,
    name: str,
    channel: str,
    on: Causes,
    jobs: str | None,
    quiet: str | None,
    digest: object,
    by: str,
) -> tuple[NotificationRule, bool]:
    """A rule made by hand, and whether that changed anything. Its channel is one that code or `fencepost.toml`
    declares: addresses and secrets have no way into the store."""
    rule = _rule(channel, on, jobs, quiet, digest, name, by)
    channels = declared_channels(await store.notices.outbox(OutboxQuery(limit=1)))
    if channel not in channels:
        there = did_you_mean(channel, channels) or f"; there are {', '.join(channels) or 'none'}"
        raise UsageError(
            f"neither scheduler.notify(…) nor [[notify]] has declared a channel {channel!r}{there}"
        )
    return rule, await store.notices.change_rule(name, rule, by)


def declared_channels(found: Outbox) -> list[str]:
    """That the leader has, or code had when it declared rules for them."""
    of_rules = {rule.channel for rule in found.rules if not rule.name}
    return sorted(of_rules | set(found.report.get("channels", ())))


@dataclass(frozen=True)
class KeptNotices:
    """In place of a channel: keeps what it is given."""

    name: str
    causes: Causes
    notices: list[Notice]

    async def deliver(self, notices: Sequence[Notice]) -> None:
        self.notices.extend(notices)
