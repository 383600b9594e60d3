"""`slack(url)`, `teams(url)`, `mattermost(url)`: incoming webhooks of chats, each with its own form and escapes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fencepost.model.notices import ALERTS, Causes, Notice
from fencepost.model.values import Json, json_text
from fencepost.notify.http import TIMEOUT, Target, post
from fencepost.notify.sending import checked_name, checked_seconds
from fencepost.notify.words import Message, message_for

LINK = "Open in the dashboard"
LONGEST_BODY = 2_900
"""Characters. Slack takes 3,000 in a block, Teams 28 KB in all, Mattermost 16,383."""
LONGEST_HEADER = 150


def slack(url: str, *, name: str = "slack", timeout: object = TIMEOUT) -> Chat:
    """An incoming webhook of Slack."""
    return Chat(checked_name(name), Target.of(url, "url"), _for_slack, checked_seconds(timeout))


def teams(url: str, *, name: str = "teams", timeout: object = TIMEOUT) -> Chat:
    """A webhook of a Teams workflow ("Post to a channel when a webhook request is received")."""
    return Chat(checked_name(name), Target.of(url, "url"), _for_teams, checked_seconds(timeout))


def mattermost(url: str, *, name: str = "mattermost", timeout: object = TIMEOUT) -> Chat:
    """An incoming webhook of Mattermost, or of a chat that takes `{"text": Markdown}` as it does."""
    return Chat(checked_name(name), Target.of(url, "url"), _for_mattermost, checked_seconds(timeout))


@dataclass(frozen=True)
class Chat:
    name: str
    target: Target
    written: Callable[[Message], Json] = field(repr=False)
    timeout: float = TIMEOUT
    causes: Causes = ALERTS

    async def deliver(self, notices: Sequence[Notice]) -> None:
        body = json_text(self.written(message_for(notices))).encode()
        await post(self.target, body, {"Content-Type": "application/json"}, self.timeout)


def _for_slack(message: Message) -> Json:
    """Blocks of plain text: Slack takes nothing in them as a format, a mention or an emoji."""
    blocks: list[Json] = [{"type": "header", "text": _plain(message.subject[:LONGEST_HEADER])}]
    if text := _body(message):
        blocks.append({"type": "section", "text": _plain(text)})
    if message.link:
        link = f"<{_slack_escaped(message.link)}|{LINK}>"
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": link}})
    return {"text": _slack_escaped(message.subject), "blocks": blocks, "unfurl_links": False}


def _plain(text: str) -> Json:
    return {"type": "plain_text", "text": text, "emoji": False}


def _slack_escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _for_teams(message: Message) -> Json:
    """An adaptive card of text runs, in which Markdown has no meaning."""
    runs = [_block(message.subject, weight="bolder", size="medium")]
    runs += [_block(line) for line in _body(message).split("\n") if line]
    card: dict[str, Json] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": runs,
    }
    if message.link:
        card["actions"] = [{"type": "Action.OpenUrl", "title": LINK, "url": message.link}]
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return {"type": "message", "attachments": [attachment]}


def _block(text: str, **style: str) -> Json:
    return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text, **style}]}


def _for_mattermost(message: Message) -> Json:
    lines = [f"**{_markdown_escaped(message.subject)}**"]
    lines += [_markdown_escaped(line) for line in _body(message).split("\n")]
    if message.link:
        lines.append(f"[{LINK}]({message.link})")
    return {"text": "  \n".join(lines)}


def _markdown_escaped(text: str) -> str:
    """Nothing is a format, a link or a mention. An @ followed by a space of no width calls no people."""
    return re.sub(r"([\\`*_{}\[\]()<>#|~])", r"\\\1", text).replace("@", "@\u200b")


def _body(message: Message) -> str:
    text = "\n".join((*message.lines, *(("", message.output) if message.output else ())))
    return text if len(text) <= LONGEST_BODY else f"{text[: LONGEST_BODY - 1]}…"
