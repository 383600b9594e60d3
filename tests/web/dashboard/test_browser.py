"""Every page in a real Chromium: jobs and fires in all states, a running pipeline, a leader that was killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.web.browser import browsing
from tests.web.dashboard.explained import explained
from tests.web.dashboard.walking import a_cluster, complaints, newest, opened, too_wide, url
from tests.web.serving import eventually

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(900)]

PICTURES = os.environ.get("FENCEPOST_TEST_PICTURES")
DESK, PHONE = {"width": 1360, "height": 900}, {"width": 390, "height": 844}
LOOKS: list[tuple[str, dict[str, Any]]] = [
    ("light", {"viewport": DESK, "color_scheme": "light"}),
    ("dark", {"viewport": DESK, "color_scheme": "dark"}),
    ("phone", {"viewport": PHONE, "color_scheme": "light"}),
]
NO_SCRIPT = ("no script", {"viewport": DESK, "java_script_enabled": False})


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    with a_cluster(tmp_path_factory.mktemp("cluster")) as client:
        yield client


def pages_of(client: httpx2.Client) -> dict[str, str]:
    running = newest(client, "stop-sync", "running", "waiting", "succeeded")
    failed = newest(client, "broken", "failed")
    lost = client.get("/api/v1/fires?state=lost&limit=1").json()["items"][0]["key"]
    return {
        "overview": "/?span=10m",
        "overview-30d": "/?span=30d&tz=Europe/Zurich",
        "jobs": "/jobs",
        "jobs-next": "/jobs?sort=next&state=paused&state=running",
        "job": "/jobs/flaky",
        "job-report": "/jobs/report?at=02:30&tz=job",
        "job-never": "/jobs/far",
        "run": "/jobs/report/run",
        "pause": "/jobs/slow/pause",
        "resume": "/jobs/mailing/resume",
        "define": "/define",
        "edit": "/jobs/slow/edit",
        "remove": "/jobs/slow/remove",
        "fires": "/fires",
        "fires-skipped": "/fires?state=skipped",
        "fire-running": f"/fires/{quote(running)}",
        "fire-failed": f"/fires/{quote(failed)}",
        "fire-lost": f"/fires/{quote(lost)}",
        "retry": f"/fires/{quote(failed)}/retry",
        "cancel": f"/fires/{quote(running)}/cancel",
        "bulk": "/bulk?do=pause&job=slow&job=ping",
        "find": "/find?q=job",
        "load": "/load",
        "cluster": "/cluster?span=10m",
        "history": "/history",
        "audit": "/audit?run=1",
        "doctor": "/doctor",
    }


@pytest.mark.parametrize(("name", "options"), LOOKS)
def test_every_page_is_clean_and_accessible(
    browser: Browser, cluster: httpx2.Client, name: str, options: dict[str, Any]
) -> None:
    with opened(browser, **options) as (_, page, said):
        bad: list[str] = []
        for title, path in pages_of(cluster).items():
            page.goto(url(cluster, path))
            expect(page.locator("h1")).to_have_count(1)
            found = complaints(Axe().run(page)) + too_wide(page)
            bad += [f"{title}: {each}" for each in found]
            if PICTURES:
                page.screenshot(path=Path(PICTURES) / f"{title}-{name}.png", full_page=True)
        assert bad == []
        assert said == []
        assert "broken" not in page.title()


@pytest.mark.parametrize(("name", "options"), [LOOKS[0], LOOKS[2], NO_SCRIPT])
def test_every_state_is_shown_with_its_reason(
    browser: Browser, cluster: httpx2.Client, name: str, options: dict[str, Any]
) -> None:
    with opened(browser, **options) as (_, page, said):
        bad: list[str] = []
        for path, words in explained(cluster).items():
            page.goto(url(cluster, path))
            shown = " ".join(page.locator("main").inner_text().split())
            found = [f"{each!r} is not in {shown[:2000]!r}" for each in words if each not in shown]
            if name != "no script":
                found += complaints(Axe().run(page)) + too_wide(page) + cut_off(page)
            bad += [f"{path}: {each}" for each in found]
            if PICTURES:
                page.screenshot(path=Path(PICTURES) / f"{quote(path, safe='')}-{name}.png", full_page=True)
        assert bad == []
        assert [each for each in said if "409" not in each] == []  # the page of a job that cannot be read


def cut_off(page: Page) -> list[str]:
    """Reasons of which a part is hidden."""
    found: list[str] = page.evaluate(
        """[...document.querySelectorAll("main :is(small, .reason, .sentence, .remedy, .notice)")]
            .filter((each) => each.scrollHeight > each.clientHeight + 1 && each.clientHeight > 0)
            .map((each) => `cut off: ${each.textContent}`)"""
    )
    return found


def test_without_javascript_everything_can_be_read_and_done(browser: Browser, cluster: httpx2.Client) -> None:
    with opened(browser, viewport=DESK, java_script_enabled=False) as (_, page, said):
        for path in pages_of(cluster).values():
            page.goto(url(cluster, path))
            assert page.locator("h1").count() == 1
        page.goto(url(cluster, "/jobs/report"))
        page.get_by_role("link", name="Run report").click()
        page.get_by_label("region").fill("de")
        page.get_by_role("button", name="Run now").click()
        expect(page.locator("h1")).to_contain_text("report!")
        page.goto(url(cluster, "/jobs/far"))
        page.get_by_role("link", name="Pause far").click()
        page.get_by_label("Reason").fill("no script")
        page.get_by_label("Until").fill("2h")
        page.get_by_role("button", name="Pause").click()
        expect(page.locator("main")).to_contain_text("no script")
        page.get_by_role("button", name="Resume far").click()
        expect(page.locator("main")).to_contain_text("The job is resumed.")
        page.goto(url(cluster, f"/fires/{quote(newest(cluster, 'broken', 'failed'))}"))
        page.get_by_role("link", name="Retry…").click()
        page.get_by_role("button", name="Retry").click()
        expect(page.locator("main")).to_contain_text("retry of")
        page.goto(url(cluster, f"/fires/{quote(newest(cluster, 'queued', 'running'))}/cancel"))
        page.get_by_role("button", name="Cancel this fire").click()
        page.goto(url(cluster, "/jobs?q=job-0"))
        for box in page.get_by_role("checkbox").all()[:2]:
            box.check()
        page.get_by_role("button", name="Pause…").click()
        expect(page.locator("h1")).to_have_text("Pause 2 jobs")
        page.get_by_role("button", name="Pause 2 jobs").click()
        expect(page.locator("h1")).to_have_text("Pause: 2 of 2 done")
        page.get_by_role("button", name="dark").or_(page.locator("summary").first).first.click()
        assert said == []


def test_the_keyboard_is_enough(browser: Browser, cluster: httpx2.Client) -> None:
    with opened(browser, viewport=DESK) as (_, page, said):
        page.goto(url(cluster, "/jobs"))
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.keyboard.press("k")
        first = page.locator("[data-row]").first
        expect(first).to_be_focused()
        page.keyboard.press("x")
        expect(page.get_by_role("checkbox").first).to_be_checked()
        page.keyboard.press("Enter")
        expect(page).to_have_url(url(cluster, "/jobs/billing.job-00"))
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        page.keyboard.press("g")
        page.keyboard.press("c")
        expect(page).to_have_url(url(cluster, "/cluster"))
        page.keyboard.press("/")
        page.keyboard.type("report 02:30")
        page.keyboard.press("Enter")
        expect(page.locator("#answer")).to_be_visible()
        page.keyboard.press("Tab")
        page.keyboard.press("r")
        expect(page.locator("#said")).to_have_text("The page was read anew.")
        assert said == []


def test_pages_update_in_place_and_disturb_nobody(browser: Browser, cluster: httpx2.Client) -> None:
    with opened(browser, viewport=DESK) as (context, page, said):
        page.goto(url(cluster, "/?span=10m"))
        expect(page.locator("#live")).to_have_text("live")
        row = page.locator("#lane-ping [data-row]")
        row.focus()
        page.evaluate("window.kept = document.activeElement; scrollTo(0, 300)")
        page.evaluate("document.querySelector('#timeline-table').open = true")
        before = page.locator("[data-now]").get_attribute("data-now")
        expect(page.locator("[data-now]")).not_to_have_attribute("data-now", before or "", timeout=60_000)
        assert page.evaluate("document.activeElement === window.kept"), "the focus stays"
        assert page.evaluate("scrollY") == 300
        assert page.evaluate("document.querySelector('#timeline-table').open")
        page.locator("#find").fill("half a wor")
        page.evaluate("getSelection().selectAllChildren(document.querySelector('#lane-broken'))")
        held = page.locator("[data-now]").get_attribute("data-now")
        page.wait_for_timeout(5_000)
        assert page.locator("[data-now]").get_attribute("data-now") == held, (
            "nothing moves while text is selected"
        )
        assert page.locator("#find").input_value() == "half a wor"
        page.evaluate("getSelection().empty()")
        expect(page.locator("[data-now]")).not_to_have_attribute("data-now", held or "", timeout=60_000)

        second = context.new_page()
        second.goto(url(cluster, "/jobs/ping"))
        expect(second.locator("#live")).to_have_text("live")
        eventually(lambda: streams(page) + streams(second) == 1)
        hide(page, True)
        eventually(lambda: streams(page) == 0 and streams(second) == 1)
        hide(page, False)
        eventually(lambda: streams(page) + streams(second) == 1)

        second.keyboard.press("l")
        expect(second.locator("#live")).to_have_text("not live")
        expect(second.locator("#said")).to_have_text("Live updates are off.")
        second.reload()
        expect(second.locator("#live")).to_have_text("not live")
        assert said == []


def streams(page: Page) -> int:
    """Open event streams of this page."""
    return int(page.evaluate("globalThis.fencepostStreams?.() ?? 0"))


def hide(page: Page, hidden: bool) -> None:
    """As if another tab had been chosen, which a headless browser does not do."""
    page.evaluate(
        """(hidden) => {
            Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def test_what_somebody_does_is_seen_by_others(browser: Browser, cluster: httpx2.Client) -> None:
    with opened(browser, viewport=DESK) as (_, page, said):
        page.goto(url(cluster, "/jobs/manual"))
        cluster.post("/api/v1/jobs/manual/pause", json={"reason": "seen by all"})
        expect(page.locator("main")).to_contain_text("seen by all", timeout=60_000)
        cluster.post("/api/v1/jobs/manual/resume")
        expect(page.get_by_role("link", name="Pause manual")).to_be_visible(timeout=60_000)
        assert said == []
