"""The outbox of notifications, as it is shown and changed by people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from fencepost.errors import UsageError
from fencepost.insight.views.shapes import Shape
from fencepost.insight.visible import EVERYTHING, Sight
from fencepost.model.triggers import iso
from fencepost.model.watching import NotificationRule
from fencepost.notify.causes import words_of
from fencepost.settings import did_you_mean
from fencepost.store.base import Store
from fencepost.store.outbox import NoticeChange, Outbox, OutboxQuery, RuleChange, Waiting

PAGE = 200
MOST_CHANGED = 5_000
"""With one request: an outbox holds fewer for a channel."""


def outbox_shape(found: Outbox, sight: Sight = EVERYTHING) -> Shape:
    """A page, and how the channels fare. Rules may name jobs that the reader may not see."""
    notices = [each for each in found.notices if sight.sees(each.notice.job_id)]
    channels = channel_names(found) if sight.is_whole else ()
    return {
        "items": [notice_shape(replace(each, notice=sight.notice(each.notice))) for each in notices],
        "channels": [channel_shape(found, name) for name in channels],
    }


def notice_shape(waiting: Waiting) -> Shape:
    notice = waiting.notice
    return {
        "id": notice.id,
        "channel": waiting.channel,
        "cause": notice.cause,
        "job_id": notice.job_id,
        "fire": notice.fire,
        "state": notice.state,
        "reason": notice.reason,
        "error": notice.error,
        "at": iso(notice.at),
        "count": notice.count,
        "attempts": waiting.attempts,
        "last_error": waiting.error,
        "set_aside_at": iso(waiting.set_aside_at) if waiting.set_aside_at else None,
    }


def channel_names(found: Outbox) -> list[str]:
    """All that a rule, a notice or the leader names."""
    named = {rule.channel for rule in found.rules}
    return sorted(named | set(found.waiting) | set(found.aside) | set(found.report.get("channels", ())))


def channel_shape(found: Outbox, name: str) -> Shape:
    standing = found.report.get("channels", {}).get(name)
    return {
        "name": name,
        "waiting": found.waiting.get(name, 0),
        "set_aside": found.aside.get(name, 0),
        "failing_since": standing["failing_since"] if standing else None,
        "error": standing["error"] if standing else None,
        "delivered_by": found.report.get("replica") if standing is not None else None,
        "rules": [rule_shape(rule) for rule in found.rules if rule.channel == name],
    }


def rule_shape(rule: NotificationRule) -> Shape:
    return {
        "name": rule.name or None,
        "source": rule.source,
        "channel": rule.channel,
        "on": words_of(rule.on),
        "jobs": rule.jobs or None,
        "quiet": rule.quiet or None,
        "digest_seconds": rule.digest or None,
        "by": rule.by or None,
    }


def rule_change_shape(change: RuleChange) -> Shape:
    rule = rule_shape(change.rule) if change.rule is not None else None
    return {"name": change.name, "at": iso(change.at), "by": change.by, "rule": rule}


async def change_notices(
    store: Store,
    channel: str,
    id: str | None,
    kind: Literal["retry", "drop"],
    sees: Callable[[str], bool] | None = None,
) -> int:
    """Try again what was set aside, or drop it with what waits; one, or all of a channel. How many."""
    found = await store.notices.outbox(OutboxQuery(limit=1))
    if channel not in (names := channel_names(found)):
        raise UsageError(f"no rule or notice names a channel {channel!r}{did_you_mean(channel, names)}")
    keys = await _keys_of(store, channel, True, id, sees)
    if kind == "drop":
        keys += await _keys_of(store, channel, False, id, sees)
    if id is not None and not keys:
        raise UsageError(f"channel {channel} has no such notice {id!r}; `fencepost notify list` lists them")
    changed = 0
    for start in range(0, len(keys), PAGE):
        some = [NoticeChange(key, kind) for key in keys[start : start + PAGE]]
        changed += sum(await store.notices.update_outbox(some))
    return changed


async def _keys_of(
    store: Store, channel: str, aside: bool, id: str | None, sees: Callable[[str], bool] | None
) -> list[str]:
    keys: list[str] = []
    after = ""
    while len(keys) < MOST_CHANGED:
        page = (await store.notices.outbox(OutboxQuery(channel, aside, after, PAGE))).notices
        keys += [
            each.key
            for each in page
            if id in (None, each.notice.id) and (sees is None or sees(each.notice.job_id))
        ]
        if len(page) < PAGE:
            break
        after = page[-1].key
    return keys
