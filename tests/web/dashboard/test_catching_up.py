"""A page in a real Chromium shows what changed after it was made, also before it could hear of changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from fencepost import Scheduler
from tests.web.browser import browsing
from tests.web.dashboard.walking import opened, url
from tests.web.sample import sample
from tests.web.serving import service

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

EVENTS, SCRIPT = "**/api/v1/events*", "**/dashboard.*.js"
SEEN = 60_000
"""Milliseconds until a page that does not catch up is called one."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def client(store: str) -> Iterator[httpx2.Client]:
    with service(sample(store)) as client:
        yield client


def pause(client: httpx2.Client, reason: str) -> None:
    assert client.post("/api/v1/jobs/report/pause", json={"reason": reason}).status_code == 200


def expect_shown(page: Page, reason: str) -> None:
    expect(page.locator("main")).to_contain_text(reason, timeout=SEEN)


@pytest.mark.parametrize("path", ["/jobs/report", "/history"])
def test_what_changes_before_the_stream_begins_is_shown(
    browser: Browser, client: httpx2.Client, path: str
) -> None:
    def late(route: Route) -> None:
        pause(client, "before the stream")
        route.continue_()

    with opened(browser) as (_, page, said):
        page.route(EVENTS, late)
        page.goto(url(client, path))
        expect_shown(page, "before the stream")
        assert said == []


@pytest.mark.slow
def test_a_page_that_is_shared_and_older_than_the_event_is_read_again(
    browser: Browser, client: httpx2.Client, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another process changes is in no shared reading of this one until that is no longer fresh."""
    monkeypatch.setattr("fencepost.insight.reader.FRESH", 6.0)
    with opened(browser) as (_, page, said), Scheduler(store).background() as other:
        with page.expect_request(EVENTS):
            page.goto(url(client, "/jobs/report"))
        other.sync.pause("report", reason="by another process")
        expect_shown(page, "by another process")
        assert said == []


@pytest.mark.slow
def test_a_page_that_hears_of_changes_from_another_one_catches_up_too(
    browser: Browser, client: httpx2.Client
) -> None:
    with opened(browser) as (context, first, said):
        first.goto(url(client, "/jobs/report"))
        pause(client, "first")
        expect_shown(first, "first")
        second = context.new_page()

        def late(route: Route) -> None:
            client.post("/api/v1/jobs/report/resume")
            pause(client, "before the script")
            expect_shown(first, "before the script")
            route.continue_()

        second.route(SCRIPT, late)
        second.goto(url(client, "/jobs/report"))
        expect_shown(second, "before the script")
        assert said == []
