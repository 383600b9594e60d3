"""The rules of notifications: those that code declares, by channel, and those made by hand, by name.

In the entries of a store:

    rules                                all of them, as one text
    rule_changes/<microseconds>/<name>   who changed a rule by hand, oldest first
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache

from fencepost.clock import Moment
from fencepost.errors import ConfigurationError, FencepostError
from fencepost.model import JobRecord, changed
from fencepost.model.selection import selects
from fencepost.model.watching import MOST_RULES, NotificationRule
from fencepost.store.codec import from_json, micros, to_json
from fencepost.store.outbox import RuleChange
from fencepost.store.rows import Rows

RULES, CHANGES = "rules", "rule_changes/"
MOST_CHANGES = 200
"""Kept of them; the oldest go."""


def put_rules(rows: Rows, at: Moment, channel: str, rules: Sequence[NotificationRule]) -> bool:
    """What code declares for this channel, in place of what code declared before; whether that changed anything."""
    others = [rule for rule in stored_rules(rows) if rule.name or rule.channel != channel]
    return _store(rows, [*others, *dict.fromkeys(rules)])


def change_rule(rows: Rows, at: Moment, name: str, rule: NotificationRule | None, by: str) -> bool:
    """A rule made by hand, in place of the one that had this name; None removes it. Whether that changed anything."""
    others = [each for each in stored_rules(rows) if each.name != name]
    if not _store(rows, [*others, rule] if rule is not None else others):
        return False
    if rows.entries.count(CHANGES) >= MOST_CHANGES:
        rows.entries.drop(rows.entries.page(CHANGES, "", 1)[0][0])
    change = RuleChange(name, at.wall, by, rule)
    rows.entries.put(f"{CHANGES}{micros(at.wall):016d}/{name}", json.dumps(to_json(change)))
    return True


def _store(rows: Rows, rules: Iterable[NotificationRule]) -> bool:
    after = tuple(sorted(rules, key=lambda rule: (rule.channel, rule.name, rule.id)))
    if len(after) > MOST_RULES:
        raise ConfigurationError(f"there are {len(after)} notification rules; at most {MOST_RULES} are kept")
    if after == stored_rules(rows):
        return False
    if after:
        rows.entries.put(RULES, json.dumps(to_json(after), separators=(",", ":")))
    else:
        rows.entries.drop(RULES)  # failures take the fast path again
    rows.notify = True
    return True


def stored_rules(rows: Rows) -> tuple[NotificationRule, ...]:
    return _rules_in(rows.entries.get(RULES) or "[]")


@lru_cache(maxsize=10)
def _rules_in(text: str) -> tuple[NotificationRule, ...]:
    """Without those of a later release that this one does not understand."""
    rules = []
    for each in json.loads(text):
        with suppress(FencepostError):
            rules.append(from_json(NotificationRule, each))
    return tuple(rules)


def rule_changes(rows: Rows) -> tuple[RuleChange, ...]:
    """Newest first."""
    found = rows.entries.page(CHANGES, "", MOST_CHANGES)
    return tuple(from_json(RuleChange, json.loads(text)) for _, text in reversed(found))


def watched(rules: Sequence[NotificationRule], record: JobRecord) -> JobRecord:
    """With what the rules ask of it; the same record if that is what it has."""
    watch = tuple(dict.fromkeys(rule.watch for rule in rules if not rule.jobs or _covers(rule, record)))
    if watch == record.watch:
        return record
    asked = {each.rule for each in watch}
    return changed(
        record, watch=watch, episodes=tuple(each for each in record.episodes if each.rule in asked)
    )


def _covers(rule: NotificationRule, record: JobRecord) -> bool:
    try:
        return selects(rule.jobs, record.job)
    except FencepostError:  # of a later release
        return False
