"""A function as a channel, channels in fencepost.toml, and channels of other packages."""

from __future__ import annotations

import asyncio
import re
import threading
import tomllib
from collections.abc import Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from fencepost.errors import ConfigurationError, DeliveryFailed
from fencepost.model import integrations
from fencepost.model.notices import ALERTS, Notice
from fencepost.notify import call, function, sending
from fencepost.notify.config import channel_from
from fencepost.notify.mail import Email
from fencepost.notify.webhook import Webhook
from fencepost.runs.threads import DaemonThreads
from tests.notify.samples import notice


async def test_a_function_is_called_in_a_thread() -> None:
    seen: list[tuple[str, bool]] = []

    def page(given: Notice) -> None:
        seen.append((given.id, threading.current_thread() is threading.main_thread()))

    channel = call(page)
    assert channel.name == "page"
    await channel.deliver([notice(id="1"), notice(id="2")])
    assert seen == [("1", False), ("2", False)]


async def test_a_coroutine_has_a_loop_of_its_own() -> None:
    loops = []

    async def page(given: Notice) -> None:
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())

    await call(page, name="pager").deliver([notice()])
    assert loops != [asyncio.get_running_loop()]
    assert len(loops) == 1


async def test_what_it_raises_is_a_failure_to_be_tried_again() -> None:
    def broken(given: Notice) -> None:
        raise RuntimeError("no line\nfree")

    def refusing(given: Notice) -> None:
        raise DeliveryFailed("not for me", permanent=True)

    with pytest.raises(DeliveryFailed, match="RuntimeError: no line free") as caught:
        await call(broken).deliver([notice()])
    assert not caught.value.permanent
    with pytest.raises(DeliveryFailed, match="not for me") as caught:
        await call(refusing).deliver([notice()])
    assert caught.value.permanent


async def test_a_function_that_hangs_is_not_called_again_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function, "TIMEOUT", 0.2)
    end, calls = threading.Event(), []

    def stuck(given: Notice) -> None:
        calls.append(given.id)
        end.wait(60)

    channel = call(stuck)
    with pytest.raises(DeliveryFailed, match="no answer within 0.2 s"):
        await channel.deliver([notice()])
    with pytest.raises(DeliveryFailed, match="still at an earlier notice"):
        await channel.deliver([notice()])
    assert len(calls) == 1
    end.set()


async def test_what_was_given_up_while_all_threads_were_busy_is_not_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sending, "_threads", DaemonThreads("test-notify", 1))
    end, done = threading.Event(), []
    busy = asyncio.ensure_future(sending.in_thread(lambda: end.wait(60), 60))
    await asyncio.sleep(0)  # it has asked for the thread
    with pytest.raises(DeliveryFailed, match="no answer within 0.1 s"):
        await sending.in_thread(lambda: done.append("late"), 0.1)
    end.set()
    await busy
    await sending.in_thread(lambda: done.append("next"), 30)
    assert done == ["next"]


def test_only_functions_can_be_called() -> None:
    with pytest.raises(ConfigurationError, match="call needs a function"):
        call("print")  # type: ignore[arg-type]


# --- fencepost.toml -----------------------------------------------------------------------------------------

ENV = {"HOOK": "https://x.test/abc", "SECRET": "s3cret-of-hook"}


def test_a_table_becomes_a_channel() -> None:
    table = {
        "channel": "webhook",
        "url": "${HOOK}/x",
        "secret": "${SECRET}",
        "on": "failed",
        "jobs": "a",
        "digest": "1h",
    }
    channel = channel_from(table, ENV)
    assert isinstance(channel, Webhook)
    assert channel.name == "webhook"
    assert channel.target.url == "https://x.test/abc/x"
    assert channel.secret == "s3cret-of-hook"
    assert channel.causes == ALERTS


def test_a_table_of_e_mail() -> None:
    table = {
        "channel": "email",
        "to": ["a@x.test", "b@x.test"],
        "sender": "f@x.test",
        "host": "smtp.x.test",
        "name": "ops",
    }
    channel = channel_from(table, ENV)
    assert isinstance(channel, Email)
    assert (channel.name, channel.to) == ("ops", ("a@x.test", "b@x.test"))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"url": "https://x.test"}, "lacks a channel"),
        ({"channel": "webhok", "url": "https://x.test"}, "did you mean 'webhook'"),
        ({"channel": "webhook", "ulr": "https://x.test"}, "did you mean 'url'"),
        ({"channel": "webhook"}, "needs url"),
        ({"channel": "webhook", "url": "${NOT_SET}"}, "environment variable NOT_SET"),
        ({"channel": "webhook", "url": 5}, "url must be"),
        ({"channel": "webhook", "url": "https://x.test", "secret": "in the file"}, "stands in the file"),
        ({"channel": "webhook", "url": "https://x.test", "name": "a b"}, "channel name"),
        ({"channel": "webhook", "url": "https://x.test", "timeout": []}, "duration"),
        ({"channel": "email", "to": 5, "sender": "f@x.test", "host": "x"}, "wrong type"),
    ],
)
def test_a_table_that_cannot_work_is_refused(table: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        channel_from(table, ENV)
    assert "in the file;" in str(caught.value) or "in the file" not in str(caught.value)


class Pager:
    def __init__(self, number: str) -> None:
        self.name, self.number, self.causes = "pager", number, ALERTS

    async def deliver(self, notices: Sequence[Notice]) -> None:
        """Nowhere."""


def test_another_package_brings_its_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("pager", "tests.notify.test_own_channels:Pager", "fencepost.channels")
    monkeypatch.setattr(integrations, "_found", lambda group: {"pager": entry})
    channel = channel_from({"channel": "pager", "number": "${SECRET}"}, ENV)
    assert channel.name == "pager"
    assert channel.number == "s3cret-of-hook"  # type: ignore[attr-defined]
    with pytest.raises(ConfigurationError, match="'pager' has no 'numbr'.*number"):
        channel_from({"channel": "pager", "numbr": "1"}, ENV)


def test_the_tables_of_the_documentation_work() -> None:
    page = (Path(__file__).parents[2] / "docs" / "channels.md").read_text(encoding="utf-8")
    [block] = re.findall(r"```toml\n(\[\[notify\]\].*?)```", page, re.DOTALL)
    env = {"HOOK_SECRET": "x" * 32, "SMTP_PASSWORD": "y" * 32}
    assert [channel_from(table, env).name for table in tomllib.loads(block)["notify"]] == ["webhook", "email"]
