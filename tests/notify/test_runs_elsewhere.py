"""Sentry and Healthchecks: every run, under an id derived from its fire."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from fencepost import cron, every
from fencepost.errors import ConfigurationError, DeliveryFailed
from fencepost.notify import healthchecks, sentry
from fencepost.notify.runs import run_id, slug_of
from fencepost.notify.sentry import schedule_of
from tests.notify.receivers import CHECK, PING_KEY, FakeHealthchecks, FakeSentry, Reply, running
from tests.notify.samples import notice

KEY = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def fake_sentry() -> Iterator[FakeSentry]:
    fake = FakeSentry(KEY)
    with running(fake.receiver):
        yield fake


@pytest.fixture
def fake_checks() -> Iterator[FakeHealthchecks]:
    fake = FakeHealthchecks()
    with running(fake.receiver):
        yield fake


# --- Sentry -------------------------------------------------------------------------------------------------


async def test_a_run_checks_in_and_makes_its_monitor(fake_sentry: FakeSentry) -> None:
    channel = sentry(fake_sentry.dsn, checkin_margin=5)
    await channel.deliver([notice("started")])
    await channel.deliver([notice("succeeded")])
    [(id, statuses)] = fake_sentry.statuses.items()
    assert statuses == ["in_progress", "ok"]
    assert UUID(id) == run_id(notice(), "production")
    assert fake_sentry.check_ins[id]["duration"] == 62.5
    assert fake_sentry.monitors == {
        "report": {
            "schedule": {"type": "crontab", "value": "30 2 * * *"},
            "timezone": "Europe/Zurich",
            "checkin_margin": 5,
        }
    }
    assert fake_sentry.dropped == []


@pytest.mark.parametrize("cause", ["failed", "missed", "lost"])
async def test_what_did_not_succeed_is_an_error(fake_sentry: FakeSentry, cause: str) -> None:
    await sentry(fake_sentry.dsn).deliver([notice(cause)])
    assert list(fake_sentry.statuses.values()) == [["error"]]


async def test_a_notice_sent_twice_is_one_check_in(fake_sentry: FakeSentry) -> None:
    channel = sentry(fake_sentry.dsn)
    for cause in ("started", "started", "failed", "failed"):
        await channel.deliver([notice(cause)])
    assert list(fake_sentry.statuses.values()) == [["in_progress", "in_progress", "error"]]
    assert fake_sentry.dropped == ["report: the check-in has ended"]


async def test_what_says_nothing_of_a_run_is_not_sent(fake_sentry: FakeSentry) -> None:
    await sentry(fake_sentry.dsn).deliver([notice("recovered"), notice("late"), notice("failed_in_a_row")])
    assert fake_sentry.receiver.requests == []


async def test_a_test_changes_nothing_at_sentry(fake_sentry: FakeSentry) -> None:
    await sentry(fake_sentry.dsn).deliver([notice("test", job_id="fencepost-test", fire=None, details={})])
    assert len(fake_sentry.receiver.requests) == 1
    assert fake_sentry.monitors == {}
    assert fake_sentry.dropped == ["fencepost-test: no monitor"]


async def test_a_wrong_key_is_said_and_not_shown(fake_sentry: FakeSentry) -> None:
    channel = sentry(fake_sentry.dsn.replace(KEY, "f" * 32))
    with pytest.raises(DeliveryFailed, match="127.0.0.1 answers 403") as caught:
        await channel.deliver([notice()])
    assert not caught.value.permanent
    assert "ffff" not in repr(caught.value) + repr(channel)


async def test_the_fake_refuses_what_sentry_refuses(fake_sentry: FakeSentry) -> None:
    channel = sentry(fake_sentry.dsn)
    object.__setattr__(channel, "environment", "a/b")
    with pytest.raises(DeliveryFailed, match="400: .*environment") as caught:
        await channel.deliver([notice()])
    assert caught.value.permanent


@pytest.mark.parametrize(
    ("trigger", "schedule"),
    [
        (cron("0 3 * * MON#1", tz="UTC"), {"type": "crontab", "value": "0 3 * * MON#1"}),
        (cron("10 0 3 * * *"), None),
        (every(minutes=1), {"type": "interval", "value": 1, "unit": "minute"}),
        (every(minutes=90), {"type": "interval", "value": 90, "unit": "minute"}),
        (every(hours=36), {"type": "interval", "value": 36, "unit": "hour"}),
        (every(days=14), {"type": "interval", "value": 2, "unit": "week"}),
        (every(seconds=59), None),
        (every(seconds=90), None),
        (every(seconds=0.5), None),
        (every(minutes=5) | cron("0 3 * * *"), None),
    ],
)
def test_a_trigger_as_a_schedule(trigger: Any, schedule: Any) -> None:
    found = schedule_of(trigger.to_json())
    assert (found and found["schedule"]) == schedule


@pytest.mark.parametrize(
    "dsn", ["", "https://host/42", "https://key@host/", "https://key@host/abc", "key@host/1", None]
)
def test_a_wrong_dsn_is_refused(dsn: Any) -> None:
    with pytest.raises(ConfigurationError, match="dsn must be"):
        sentry(dsn)


def test_a_dsn_with_a_path_keeps_it() -> None:
    assert sentry("https://abc@host:9000/a/b/42").endpoint.url == "https://host:9000/a/b/api/42/envelope/"


def test_slugs_are_distinct_and_allowed() -> None:
    assert slug_of("nightly-report_2", 50) == "nightly-report_2"
    ids = ["a.b", "a:b", "a-b", "A-b", "12", "é"[:0] or "...", "x" * 60, "x" * 61, "Report.Daily"]
    slugs = [slug_of(id, 50) for id in ids]
    assert len(set(slugs)) == len(ids)
    assert all(len(slug) <= 50 and slug == slug.lower() for slug in slugs)
    assert slug_of("Report.Daily", 50).startswith("report-daily-")


# --- Healthchecks -------------------------------------------------------------------------------------------


async def test_a_run_pings_its_check(fake_checks: FakeHealthchecks) -> None:
    channel = healthchecks(f"{fake_checks.receiver.url}/{CHECK}")
    for cause in ("started", "succeeded", "failed"):
        await channel.deliver([notice(cause)])
    rid = str(run_id(notice()))
    assert [ping[:3] for ping in fake_checks.pings] == [
        (CHECK, "start", rid),
        (CHECK, "success", rid),
        (CHECK, "fail", rid),
    ]
    body = fake_checks.pings[-1][3]
    assert body.startswith("report failed\nError: ValueError: no rows\n")
    assert body.endswith("reading\nno rows")


async def test_with_a_ping_key_each_job_has_its_check(fake_checks: FakeHealthchecks) -> None:
    base = f"{fake_checks.receiver.url}/{PING_KEY}/"
    with pytest.raises(DeliveryFailed, match="127.0.0.1 answers 404: not found"):
        await healthchecks(base).deliver([notice("succeeded")])
    await healthchecks(base, create=True).deliver([notice("succeeded"), notice("succeeded", job_id="sync")])
    assert [ping[0] for ping in fake_checks.pings] == [f"{PING_KEY}/report", f"{PING_KEY}/sync"]


async def test_the_end_of_a_long_output_is_sent(fake_checks: FakeHealthchecks) -> None:
    details = {"output_end": "ä" * 100_000 + " the end"}
    await healthchecks(f"{fake_checks.receiver.url}/{CHECK}").deliver([notice("lost", details=details)])
    assert len(fake_checks.pings[0][3].encode()) <= 10_000
    assert fake_checks.pings[0][3].endswith("the end")


async def test_a_test_is_a_log_entry(fake_checks: FakeHealthchecks) -> None:
    await healthchecks(f"{fake_checks.receiver.url}/{CHECK}").deliver([notice("test", fire=None, details={})])
    assert fake_checks.pings[0][1] == "log"


@pytest.mark.parametrize(("said", "after"), [("OK (not found)", None), ("OK (rate limited)", 60.0)])
async def test_a_ping_that_was_dropped_is_sent_again(
    fake_checks: FakeHealthchecks, said: str, after: float | None
) -> None:
    fake_checks.receiver.answer = lambda _: Reply(200, said.encode())
    with pytest.raises(DeliveryFailed, match=r"OK \(") as caught:
        await healthchecks(f"{fake_checks.receiver.url}/{CHECK}").deliver([notice("started")])
    assert (caught.value.permanent, caught.value.retry_after) == (False, after)


async def test_the_check_is_not_shown(fake_checks: FakeHealthchecks) -> None:
    unknown = "00000000-d4c7-4bf5-bcc8-b8d8a82ea278"
    channel = healthchecks(f"{fake_checks.receiver.url}/{unknown}")
    with pytest.raises(DeliveryFailed) as caught:
        await channel.deliver([notice("started")])
    assert unknown not in repr(caught.value) + repr(channel)


@pytest.mark.parametrize(
    "url", ["https://hc-ping.com", "https://hc-ping.com/", "https://hc-ping.com/a?b=c", None]
)
def test_a_wrong_ping_url_is_refused(url: Any) -> None:
    with pytest.raises(ConfigurationError, match="url"):
        healthchecks(url)
