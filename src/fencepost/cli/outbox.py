"""`fencepost notify list|retry|drop|forget`: what waits for channels, and what was set aside."""

from __future__ import annotations

from typing import Literal

import click

from fencepost.cli.output import emit, say, table, when
from fencepost.cli.source import CommandSource, json_option, takes, whoami
from fencepost.errors import UsageError
from fencepost.insight.notices import change_notices, channel_names, outbox_shape
from fencepost.model.triggers import from_iso
from fencepost.settings import did_you_mean
from fencepost.store.base import Store
from fencepost.store.outbox import Outbox, OutboxQuery


@click.command("list")
@takes()
@click.option("--aside", is_flag=True, help="Those that could not be delivered, in place of those that wait.")
@click.option("--channel", default="", help="Only of this one.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True)
@json_option
def list_notices(
    words: tuple[str, ...],
    url: str | None,
    namespace: str | None,
    aside: bool,
    channel: str,
    limit: int,
    as_json: bool,
) -> None:
    """List the channels with their rules, and the notices that wait."""
    source = CommandSource.of(words, (), url, namespace)
    found: Outbox = source.ask(lambda store: store.notices.outbox(OutboxQuery(channel, aside, limit=limit)))
    shape = outbox_shape(found)
    if as_json:
        emit(shape)
        return
    if not shape["channels"]:
        say("there are no notification rules; see scheduler.notify(…)")
        return
    table(
        ("channel", "waiting", "set aside", "failing since", "error", "on", "jobs"),
        (
            (
                each["name"],
                each["waiting"],
                each["set_aside"],
                each["failing_since"],
                each["error"],
                "; ".join(", ".join(rule["on"]) for rule in each["rules"]),
                "; ".join(rule["jobs"] or "all" for rule in each["rules"]),
            )
            for each in shape["channels"]
        ),
    )
    if shape["items"]:
        say("")
        table(
            ("id", "channel", "cause", "job", "at", "attempts", "last error"),
            (
                (
                    each["id"],
                    each["channel"],
                    each["cause"],
                    each["job_id"],
                    when(from_iso(each["at"])),
                    each["attempts"],
                    each["last_error"],
                )
                for each in shape["items"]
            ),
        )


@click.command("retry")
@takes("CHANNEL")
@click.option("--id", help="Only this notice.")
@json_option
def retry_notices(
    words: tuple[str, ...], url: str | None, namespace: str | None, id: str | None, as_json: bool
) -> None:
    """Deliver again what was set aside for CHANNEL, under the same ids."""
    _changed(words, url, namespace, id, as_json, "retry")


@click.command("drop")
@takes("CHANNEL")
@click.option("--id", help="Only this notice.")
@json_option
def drop_notices(
    words: tuple[str, ...], url: str | None, namespace: str | None, id: str | None, as_json: bool
) -> None:
    """Drop what waits or was set aside for CHANNEL. It is not delivered any more."""
    _changed(words, url, namespace, id, as_json, "drop")


@click.command("forget")
@takes("CHANNEL")
def forget_channel(words: tuple[str, ...], url: str | None, namespace: str | None) -> None:
    """Remove the rules of CHANNEL, also those made by hand. What code declares comes back at its next start."""
    source = CommandSource.of(words, ("CHANNEL",), url, namespace)
    [channel] = source.words

    async def forget(store: Store) -> None:
        found = await store.notices.outbox(OutboxQuery(limit=1))
        by_hand = [rule.name for rule in found.rules if rule.name and rule.channel == channel]
        removed = [await store.notices.change_rule(name, None, whoami()) for name in by_hand]
        if not any((await store.notices.put_rules(channel, []), *removed)):
            names = channel_names(found)
            raise UsageError(f"channel {channel!r} has no rules{did_you_mean(channel, names)}")

    source.ask(forget)
    say(f"the rules of {channel} are removed")


def _changed(
    words: tuple[str, ...],
    url: str | None,
    namespace: str | None,
    id: str | None,
    as_json: bool,
    kind: Literal["retry", "drop"],
) -> None:
    source = CommandSource.of(words, ("CHANNEL",), url, namespace)
    [channel] = source.words
    number = source.ask(lambda store: change_notices(store, channel, id, kind))
    if as_json:
        emit({"channel": channel, kind: number})
    else:
        verb = "will be delivered again" if kind == "retry" else "dropped"
        say(f"{channel}: {number} notice{'' if number == 1 else 's'} {verb}")


OUTBOX_COMMANDS = (list_notices, retry_notices, drop_notices, forget_channel)
