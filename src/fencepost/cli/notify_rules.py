"""`fencepost notify rules|set|unset`: the rules of notifications, and those made by hand."""

from __future__ import annotations

import click

from fencepost.cli.output import emit, say, table, when
from fencepost.cli.source import CommandSource, json_option, takes, whoami
from fencepost.errors import UsageError
from fencepost.insight.notices import rule_change_shape, rule_shape
from fencepost.notify.causes import causes_from, words_of
from fencepost.scheduler.notifications import make_rule
from fencepost.settings import did_you_mean
from fencepost.store.base import Store
from fencepost.store.outbox import Outbox, OutboxQuery


@click.command("rules")
@takes()
@json_option
def list_rules(words: tuple[str, ...], url: str | None, namespace: str | None, as_json: bool) -> None:
    """List the rules, of code and made by hand, and who changed the latter."""
    source = CommandSource.of(words, (), url, namespace)
    found: Outbox = source.ask(lambda store: store.notices.outbox(OutboxQuery(limit=1, changes=True)))
    if as_json:
        emit(
            {
                "items": [rule_shape(rule) for rule in found.rules],
                "changes": [rule_change_shape(change) for change in found.changes],
            }
        )
        return
    if not found.rules and not found.changes:
        say("there are no notification rules; see scheduler.notify(…)")
        return
    table(
        ("name", "channel", "on", "jobs", "quiet", "digest", "made by"),
        (
            (
                rule.name or None,
                rule.channel,
                ", ".join(words_of(rule.on)),
                rule.jobs or "all",
                rule.quiet or None,
                f"{rule.digest:g} s" if rule.digest else None,
                rule.by if rule.name else "code",
            )
            for rule in found.rules
        ),
    )
    if found.changes:
        say("")
        table(
            ("at", "by", "rule", "became"),
            (
                (
                    when(change.at),
                    change.by,
                    change.name,
                    f"{', '.join(words_of(change.rule.on))} to {change.rule.channel}"
                    if change.rule
                    else "removed",
                )
                for change in found.changes
            ),
        )


@click.command("set")
@takes("NAME")
@click.option("--channel", required=True, help="One that code or fencepost.toml declares.")
@click.option("--on", required=True, help="Causes between commas: failed,recovered,'late 5m'.")
@click.option("--jobs", help="An id, report-*, tag:NAME or owner:NAME; default: all.")
@click.option("--quiet", help="Hours without messages: '22:00-07:00 Europe/Zurich'.")
@click.option("--digest", help="Gather notices so long for one message: 15m.")
@json_option
def set_rule(
    words: tuple[str, ...],
    url: str | None,
    namespace: str | None,
    channel: str,
    on: str,
    jobs: str | None,
    quiet: str | None,
    digest: str | None,
    as_json: bool,
) -> None:
    """Make the rule NAME, or replace it. It holds beside those that code declares."""
    source = CommandSource.of(words, ("NAME",), url, namespace)
    [name] = source.words
    causes = causes_from(on.split(","))
    rule, changed = source.ask(
        lambda store: make_rule(store, name, channel, causes, jobs, quiet, digest, whoami())
    )
    if as_json:
        emit({**rule_shape(rule), "changed": changed})
    else:
        summary = f"{channel} hears of {', '.join(words_of(rule.on))} of {jobs or 'all jobs'}"
        say(f"rule {name}: {summary}{'' if changed else ', as before'}")


@click.command("unset")
@takes("NAME")
@json_option
def unset_rule(words: tuple[str, ...], url: str | None, namespace: str | None, as_json: bool) -> None:
    """Remove the rule NAME, which was made by hand."""
    source = CommandSource.of(words, ("NAME",), url, namespace)
    [name] = source.words

    async def remove(store: Store) -> None:
        if not await store.notices.change_rule(name, None, whoami()):
            rules = (await store.notices.outbox(OutboxQuery(limit=1))).rules
            hint = did_you_mean(name, [rule.name for rule in rules if rule.name])
            raise UsageError(f"there is no rule {name!r} that was made by hand{hint}")

    source.ask(remove)
    if as_json:
        emit({"name": name})
    else:
        say(f"rule {name} is removed")


RULE_COMMANDS = (list_rules, set_rule, unset_rule)
