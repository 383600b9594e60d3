"""The widget in a real Chromium: every state, on desk and phone, light and dark, with axe-core looking."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect
from starlette.applications import Starlette
from starlette.routing import Mount, Route

from fencepost import Pipeline, Scheduler, every
from fencepost.pipeline import PipelineRun
from tests.web.apps.status import Script, moment, page_with
from tests.web.browser import browsing
from tests.web.serving import PATIENCE, QUICK, eventually, served

pytestmark = pytest.mark.browser

WIDGET = "fencepost-status"
PICTURES = os.environ.get("FENCEPOST_TEST_PICTURES")
"""A folder for screenshots, to be looked at."""
DESK, PHONE = {"width": 1100, "height": 600}, {"width": 360, "height": 640}
NASTY = "<img src=x onerror=\"document.title='broken'\">"
RUNNING: dict[str, Any] = {"status": "running", "phase": "matching", "message": "Matching stops"}
BLOCKING: dict[str, Any] = {
    "status": "running",
    "phase": "import",
    "message": "Importing 4,218 stops",
    "blocking_maintenance": True,
    "processed": 1_000,
    "total": 4_000,
    "eta_seconds": 150,
    "eta_low_seconds": 120,
    "eta_high_seconds": 240,
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@pytest.fixture
def script() -> Iterator[tuple[Script, str]]:
    script = Script()
    with served(script) as url:
        yield script, url
        script.ended = True


@contextmanager
def opened(browser: Browser, url: str, **options: Any) -> Iterator[Page]:
    context = browser.new_context(locale="en-GB", timezone_id="America/New_York", **options)
    page = context.new_page()
    broken: list[str] = []
    page.on("pageerror", lambda error: broken.append(str(error)))
    try:
        page.goto(url)
        yield page
    finally:
        context.close()
    assert broken == []


def label(page: Page) -> Any:
    return page.locator(f"{WIDGET} [part=label]")


def dialog(page: Page) -> Any:
    return page.locator(f"{WIDGET} dialog")


def looked_at(page: Page, name: str) -> None:
    """By axe-core, and for people as a picture."""
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    pictured(page, name)


def pictured(page: Page, name: str) -> None:
    if PICTURES:
        page.screenshot(path=Path(PICTURES) / f"{name}.png")


@pytest.mark.parametrize(
    ("device", "viewport", "scheme"),
    [
        ("desk", DESK, "light"),
        ("phone", PHONE, "dark"),
        pytest.param("desk", DESK, "dark", marks=pytest.mark.slow),
        pytest.param("phone", PHONE, "light", marks=pytest.mark.slow),
    ],
)
def test_every_state_is_shown_and_accessible(
    browser: Browser,
    script: tuple[Script, str],
    device: str,
    viewport: Any,
    scheme: Literal["light", "dark"],
) -> None:
    said, url = script
    with opened(browser, "about:blank", viewport=viewport, color_scheme=scheme) as page:
        page.clock.install()
        page.goto(url)
        picture = f"{device}-{scheme}"
        expect(label(page)).to_have_text("Data updated: 2026-11-15 03:30 CET")
        page.locator(f"{WIDGET} [part=info]").hover()
        expect(page.locator(f"{WIDGET} [role=tooltip]")).to_contain_text("Next run: ")
        looked_at(page, f"{picture}-1-idle")

        said.say(**RUNNING)
        expect(label(page)).to_have_text("Update running in the background")
        expect(dialog(page)).to_be_hidden()
        looked_at(page, f"{picture}-2-running")

        page.locator("#work").focus()
        said.say(**BLOCKING, maintenance_started_at=moment(-30))
        expect(dialog(page)).to_be_visible()
        expect(dialog(page)).to_contain_text("Importing 4,218 stops")
        expect(dialog(page)).to_contain_text("usually 2 min to 4 min")
        expect(page.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "25")
        looked_at(page, f"{picture}-3-blocking")

        said.say(status="failed", phase="failed", last_error=NASTY, message=NASTY)
        expect(label(page)).to_have_text("Last update failed. Data from 2026-11-15 03:30 CET")
        expect(dialog(page)).to_be_hidden()
        assert page.evaluate("document.activeElement.id") == "work", "the focus is not back where it was"
        looked_at(page, f"{picture}-4-failed")

        said.fails = True
        page.clock.run_for(40_000)
        expect(label(page)).to_have_text("Status unavailable. Data from 2026-11-15 03:30 CET")
        looked_at(page, f"{picture}-5-down")

        said.fails = False
        said.say()
        page.clock.run_for(12_000)
        expect(label(page)).to_have_text("Data updated: 2026-11-15 03:30 CET")
        looked_at(page, f"{picture}-6-recovered")


def test_a_failing_api_lifts_the_overlay(browser: Browser, script: tuple[Script, str]) -> None:
    said, url = script
    said.say(**BLOCKING, maintenance_started_at=moment(-30))
    with opened(browser, "about:blank") as page:
        page.clock.install()
        page.goto(url)
        page.clock.run_for(400)
        expect(dialog(page)).to_be_visible()
        said.fails = True
        page.clock.run_for(8_000)
        expect(dialog(page)).to_be_visible()  # one failure, or some, says nothing about the maintenance
        page.clock.run_for(20_000)
        expect(dialog(page)).to_be_hidden()
        expect(label(page)).to_have_text("Status unavailable. Data from 2026-11-15 03:30 CET")
        said.fails = False
        page.clock.run_for(12_000)
        expect(dialog(page)).to_be_visible()  # it goes on: now that is known again


def test_an_api_that_never_answered_blocks_nothing(browser: Browser, script: tuple[Script, str]) -> None:
    said, url = script
    said.fails = True
    with opened(browser, url) as page:
        expect(label(page)).to_have_text("Status unavailable")
        expect(dialog(page)).to_be_hidden()
        looked_at(page, "never")


@contextmanager
def frozen(browser: Browser, url: str) -> Iterator[Page]:
    """Time stands still but for what the test lets pass."""
    with opened(browser, "about:blank") as page:
        page.clock.install()
        page.goto(url)
        expect(label(page)).to_contain_text("Data updated")
        page.clock.pause_at(page.evaluate("Date.now()") / 1_000 + 1)
        yield page


def test_without_events_it_polls_slowly_when_idle_and_quickly_when_active(
    browser: Browser, script: tuple[Script, str]
) -> None:
    said, url = script
    said.attributes = 'live="off"'
    with frozen(browser, url) as page:
        asked = said.asked
        page.clock.run_for(2_000)
        assert said.asked == asked
        said.say(**RUNNING)
        page.clock.run_for(9_500)
        expect(label(page)).to_have_text("Update running in the background")
        asked = said.asked
        page.clock.run_for(1_700)
        eventually(lambda: said.asked == asked + 1)


def test_a_refused_stream_is_tried_again(browser: Browser, script: tuple[Script, str]) -> None:
    said, url = script
    said.live, said.attributes = False, ""
    with frozen(browser, url) as page:
        expect(label(page)).to_have_text("Data updated: 2026-11-14 21:30 GMT-5")
        said.live = True
        with page.expect_response(lambda answer: "/events?" in answer.url and answer.ok):
            page.clock.run_for(10_000)


def test_a_short_maintenance_does_not_flash(browser: Browser, script: tuple[Script, str]) -> None:
    said, url = script
    said.attributes = 'live="off"'
    with frozen(browser, url) as page:
        said.say(**BLOCKING)
        page.evaluate("document.querySelector('fencepost-status').refresh()")
        expect(label(page)).to_have_text("Maintenance in progress")
        page.clock.run_for(200)
        expect(dialog(page)).to_be_hidden()
        page.clock.run_for(200)
        expect(dialog(page)).to_be_visible()


def test_keyboard_and_screen_reader(browser: Browser, script: tuple[Script, str]) -> None:
    said, url = script
    with opened(browser, url) as page:
        expect(label(page)).to_contain_text("Data updated")
        page.keyboard.press("Tab")
        tip = page.get_by_role("tooltip")
        expect(tip).to_be_visible()
        expect(page.get_by_role("button", name="Next run")).to_be_focused()
        page.keyboard.press("Escape")
        expect(tip).to_be_hidden()
        heard = page.locator(f"{WIDGET} [aria-live=polite]")
        expect(heard).to_have_text("")  # nothing has changed: nothing is said
        said.say(**BLOCKING)
        expect(dialog(page)).to_be_visible()
        expect(heard).to_have_text("Maintenance in progress")
        for _ in range(3):
            page.keyboard.press("Escape")
        expect(dialog(page)).to_be_visible()
        said.say()
        expect(dialog(page)).to_be_hidden()
        expect(heard).to_contain_text("Maintenance is over. Data updated")


def test_text_from_the_server_is_never_markup(browser: Browser, script: tuple[Script, str]) -> None:
    said, url = script
    said.say(**{**BLOCKING, "message": NASTY})
    with opened(browser, url) as page:
        expect(dialog(page)).to_contain_text(NASTY)
        assert page.locator(f"{WIDGET} img").count() == 0
        assert page.title() == "Stops"


def test_texts_zone_and_overlay_can_be_chosen(browser: Browser, script: tuple[Script, str]) -> None:
    said, url = script
    said.attributes = (
        'overlay="off" locale="de-CH" time-zone="Asia/Tokyo" '
        """texts='{"updated": "Stand {time}", "blocking": "Import"}'"""
    )
    with opened(browser, url) as page:
        expect(label(page)).to_have_text("Stand 15.11.2026, 11:30 GMT+9")
        said.say(**BLOCKING)
        expect(label(page)).to_have_text("Import")
        expect(dialog(page)).to_be_hidden()
        page.evaluate(
            """() => { document.querySelector("fencepost-status").texts = {blocking: "Wartung"}; }"""
        )
        expect(label(page)).to_have_text("Wartung")


def test_a_maintenance_that_takes_long_says_so(browser: Browser, script: tuple[Script, str]) -> None:
    said, url = script
    said.say(**{**BLOCKING, "processed": None, "total": None}, maintenance_started_at=moment(-600))
    with opened(browser, url) as page:
        expect(dialog(page)).to_contain_text("longer than usual")
        expect(dialog(page)).to_contain_text("10 min")
        assert page.get_by_role("progressbar").get_attribute("aria-valuenow") is None
        looked_at(page, "longer")


def test_a_real_pipeline_from_its_first_run_to_its_end(browser: Browser) -> None:
    """The service's own status and events, not a script's."""
    steps = {name: threading.Event() for name in ("match", "import")}
    pipeline = Pipeline("import")

    @pipeline.phase("match")
    def match() -> None:
        assert steps["match"].wait(PATIENCE)

    @pipeline.phase("import", blocking=True, eta=60)
    def load(run: PipelineRun) -> None:
        run.report(done=3, total=4)
        assert steps["import"].wait(PATIENCE)

    scheduler = Scheduler("memory://", **QUICK)
    scheduler.job(every(days=300), id="import")(pipeline)
    app = Starlette(
        routes=[Route("/", page_with("")), Mount("/fencepost", scheduler.asgi())], lifespan=scheduler.lifespan
    )
    with served(app) as url, opened(browser, url) as page:
        expect(label(page)).to_have_text("Not updated yet")
        scheduler.sync.trigger("import")
        expect(label(page)).to_have_text("Update running in the background")
        steps["match"].set()
        expect(dialog(page)).to_be_visible()
        expect(page.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "75")
        steps["import"].set()
        expect(dialog(page)).to_be_hidden()
        expect(label(page)).to_contain_text("Data updated: ")
