"""Messages for people: one wording, escaped for each chat."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from fencepost.errors import ConfigurationError, DeliveryFailed
from fencepost.notify import mattermost, slack, teams
from fencepost.notify.words import message_for
from fencepost.settings import Settings
from tests.notify.receivers import Receiver, Reply, running
from tests.notify.samples import notice

NASTY = "<!channel> *bold* _x_ `code` [a](http://evil) @all & <http://evil|x> :smile:"
DASHBOARD = "https://ops.example.com/fencepost"
LINK = "https://ops.example.com/fencepost/fires/report%402026-11-17T02%3A30%3A00.000000Z"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with running(Receiver()) as started:
        yield started


def test_the_words() -> None:
    message = message_for([notice()])
    assert message.subject == "report failed"
    assert message.lines == (
        "Error: ValueError: no rows",
        "Reason: raised an exception",
        "Fire: report@2026-11-17T02:30:00.000000Z",
        "Due: 2026-11-17 02:30:00 UTC",
        "Started: 2026-11-17 02:30:01 UTC",
        "Replica: web-1",
        "At: 2026-11-17 02:31:04 UTC",
    )
    assert message.output == "reading\nno rows"
    assert message.link == LINK


@pytest.mark.parametrize(
    ("cause", "count", "subject"),
    [
        ("missed", 1, "report did not run: a fire was missed"),
        ("lost", 1, "report was cut off: its replica died"),
        ("recovered", 4, "report works again"),
        ("failed_in_a_row", 3, "report failed 3 times in a row"),
        ("no_success", 1, "report has not succeeded for too long"),
        ("late", 1, "report is late"),
        ("overflow", 7, "7 more notices are not listed: more arose than this channel could take"),
        ("of_tomorrow", 1, "report: of tomorrow"),
    ],
)
def test_every_cause_has_a_sentence(cause: str, count: int, subject: str) -> None:
    assert message_for([notice(cause, count=count)]).subject == subject


def test_a_digest_lists_its_notices_up_to_a_limit() -> None:
    many = [notice(id=str(number), job_id=f"job-{number % 3}") for number in range(40)]
    message = message_for(many)
    assert message.subject == "40 notices of 3 jobs"
    assert len(message.lines) == 31
    assert message.lines[0] == "2026-11-17 02:31:04 UTC job-0 failed: ValueError: no rows"
    assert message.lines[-1] == "… and 10 more"
    assert message.link == DASHBOARD


def test_text_from_a_job_stays_on_its_line() -> None:
    message = message_for([notice(error="a\r\nReason: forged\x1b[31m" + "x" * 9_999)])
    assert message.lines[0].startswith("Error: a Reason: forged [31mxxx")
    assert len(message.lines[0]) == 500


async def sent(receiver: Receiver, channel: Any, **given: Any) -> Any:
    await channel.deliver([notice(**given)])
    assert receiver.requests[-1].headers["content-type"] == "application/json"
    return receiver.requests[-1].json


async def test_slack_gets_plain_text(receiver: Receiver) -> None:
    body = await sent(receiver, slack(receiver.url), error=NASTY)
    header, section, link = body["blocks"]
    assert header["text"] == {"type": "plain_text", "text": "report failed", "emoji": False}
    assert section["text"]["type"] == "plain_text"
    assert NASTY in section["text"]["text"]
    assert link["text"] == {"type": "mrkdwn", "text": f"<{LINK}|Open in the dashboard>"}
    assert body["text"] == "report failed"


async def test_slack_sees_no_mention_in_the_fallback(receiver: Receiver) -> None:
    body = await sent(receiver, slack(receiver.url), cause="<!here>&")
    assert "&lt;!here&gt;&amp;" in body["text"]


async def test_slack_takes_what_is_within_its_limits(receiver: Receiver) -> None:
    channel = slack(receiver.url)
    await channel.deliver(
        [notice(id=str(number), job_id="j" * 200, error="e" * 900) for number in range(100)]
    )
    for block in receiver.requests[0].json["blocks"]:
        assert len(block["text"]["text"]) <= (150 if block["type"] == "header" else 3000)


async def test_teams_gets_an_adaptive_card_of_text_runs(receiver: Receiver) -> None:
    body = await sent(receiver, teams(receiver.url), error=NASTY)
    assert body["type"] == "message"
    [attachment] = body["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    card = attachment["content"]
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}
    texts = [run["text"] for block in card["body"] for run in block["inlines"]]
    assert texts[0] == "report failed"
    assert f"Error: {NASTY}" in texts
    assert card["actions"] == [{"type": "Action.OpenUrl", "title": "Open in the dashboard", "url": LINK}]
    assert len(json.dumps(body)) < 28_000


async def test_mattermost_gets_escaped_markdown(receiver: Receiver) -> None:
    body = await sent(receiver, mattermost(receiver.url), error=NASTY)
    subject, error, *_, link = body["text"].split("  \n")
    assert subject == "**report failed**"
    assert "@all" not in error
    assert not re.search(r"(?<!\\)[*_`\[\]()<>]", error)
    assert link == f"[Open in the dashboard]({LINK})"


async def test_a_chat_that_refuses_says_why(receiver: Receiver) -> None:
    receiver.answer = lambda _: Reply(404, b"no_service")
    with pytest.raises(DeliveryFailed, match="127.0.0.1 answers 404: no_service"):
        await slack(f"{receiver.url}/services/T000/B000/XXXXXXXX").deliver([notice()])


def test_no_repr_shows_the_address() -> None:
    for channel in (
        slack("https://x.test/abcdef"),
        teams("https://x.test/abcdef"),
        mattermost("https://x.test/abcdef"),
    ):
        assert "abcdef" not in repr(channel)


def test_without_a_dashboard_there_is_no_link() -> None:
    assert message_for([notice(details={})]).link is None


@pytest.mark.parametrize("url", ["javascript:alert(1)", "https://user@host/", "https://host/)x", 5])
def test_a_dashboard_that_is_no_url_is_refused(url: object) -> None:
    with pytest.raises(ConfigurationError, match="dashboard_url: must be a URL"):
        Settings.load(env={}, dashboard_url=url)
