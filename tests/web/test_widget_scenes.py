"""The widget among others: many elements and tabs, a laptop that slept, a visitor who has not signed in, a page that
the server has filled, other languages and forced colours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from fencepost.web.widget import status_html
from tests.web.apps.status import Script, document, moment
from tests.web.browser import browsing
from tests.web.serving import eventually, served
from tests.web.test_widget import (
    BLOCKING,
    DESK,
    PHONE,
    RUNNING,
    WIDGET,
    dialog,
    label,
    looked_at,
    opened,
    pictured,
)

pytestmark = pytest.mark.browser

UPDATED = "Data updated: 2026-11-15 03:30 CET"
ELEMENT = f'<{WIDGET} time-zone="Europe/Zurich"></{WIDGET}>'


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


def hide(page: Page, hidden: bool) -> None:
    """As if another tab had been chosen, which a headless browser does not do."""
    page.evaluate(
        """(hidden) => {
            Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def test_one_stream_however_many_elements_and_tabs(browser: Browser, script: tuple[Script, str]) -> None:
    said, url = script
    said.elements = ELEMENT * 3 + f'<{WIDGET} job="other" overlay="off" time-zone="Europe/Zurich"></{WIDGET}>'
    with opened(browser, url) as first:
        second, third = (first.context.new_page() for _ in range(2))
        for page in (second, third):
            page.goto(url)
        for page in (first, second, third):
            expect(page.locator(f"{WIDGET} [part=label]")).to_have_text([UPDATED] * 4)
        eventually(
            lambda: said.streams == 1 and "job=import" in said.opened[-1] and "job=other" in said.opened[-1]
        )
        said.say(**RUNNING)
        for page in (first, second, third):
            expect(label(page).first).to_have_text("Update running in the background")
        asked = said.asked
        said.say()
        for page in (first, second, third):
            expect(label(page).first).to_have_text(UPDATED)
        assert said.asked - asked <= 9, "each page asks once for its three equal elements"
        assert said.streams == 1
        first.close()  # it had the stream
        eventually(lambda: said.streams == 1 and len(said.opened) > 1)
        said.say(**RUNNING)
        for page in (second, third):
            expect(label(page).first).to_have_text("Update running in the background")


def test_a_hidden_tab_leaves_the_stream_to_a_visible_one(
    browser: Browser, script: tuple[Script, str]
) -> None:
    said, url = script
    with opened(browser, url) as first:
        eventually(lambda: said.streams == 1)
        hide(first, True)
        eventually(lambda: said.streams == 0)
        second = first.context.new_page()
        second.goto(url)
        eventually(lambda: said.streams == 1)
        hide(first, False)
        expect(label(first)).to_have_text(UPDATED)
        said.say(**RUNNING)
        for page in (first, second):
            expect(label(page)).to_have_text("Update running in the background")
        assert said.streams == 1


def test_a_stream_that_died_in_silence_is_noticed_within_20_seconds(
    browser: Browser, script: tuple[Script, str]
) -> None:
    """The connection looks open: nothing comes, and nothing says so."""
    said, url = script
    with opened(browser, "about:blank") as page:
        page.clock.install()
        page.goto(url)
        expect(label(page)).to_have_text(UPDATED)
        eventually(lambda: said.streams == 1)
        page.evaluate(
            """base => { window.beats = 0; window.channel = new BroadcastChannel(`fencepost ${base}`);
            window.channel.onmessage = ({ data }) => { window.beats += data.kind === "beat"; }; }""",
            f"{url}/fencepost/",
        )
        page.clock.run_for(12_000)
        page.evaluate("window.beats = 0")
        eventually(lambda: page.evaluate("window.beats") > 0)
        page.clock.run_for(12_000)
        assert len(said.opened) == 1, "a stream that beats is left alone"
        said.beats = False
        page.wait_for_timeout(100)
        asked = said.asked
        page.clock.run_for(20_000)
        eventually(lambda: len(said.opened) > 1)
        eventually(lambda: said.asked > asked)


def test_before_sign_in_nothing_is_shown_and_nothing_is_wrong(
    browser: Browser, script: tuple[Script, str]
) -> None:
    said, url = script
    said.signed_in = False
    with opened(browser, "about:blank") as page:
        told: list[str] = []
        page.on("console", lambda message: told.append(f"{message.text} {message.location}"))
        page.goto(url)
        eventually(lambda: said.asked)
        page.wait_for_timeout(300)
        assert page.locator(WIDGET).evaluate("element => element.getBoundingClientRect().width") == 0
        expect(label(page)).to_have_text("")
        looked_at(page, "signed-out")
        assert said.opened == [], "no stream either"
        said.signed_in = True
        page.evaluate("document.querySelector('fencepost-status').refresh()")
        expect(label(page)).to_have_text(UPDATED)
        said.signed_in = False  # the session ends
        page.evaluate("document.querySelector('fencepost-status').refresh()")
        expect(label(page)).to_have_text("")
        eventually(lambda: said.streams == 0)
        assert [line for line in told if "favicon" not in line] == []


def test_what_the_server_rendered_is_shown_until_the_first_answer(
    browser: Browser, script: tuple[Script, str]
) -> None:
    said, url = script
    said.elements = status_html(document(), time_zone="Europe/Zurich")
    with opened(browser, "about:blank", viewport=DESK) as page:
        page.route("**/pipeline_status*", lambda route: None)  # never answered
        page.goto(url)
        expect(label(page)).to_have_text(UPDATED)
        page.locator(f"{WIDGET} [part=info]").hover()
        expect(page.get_by_role("tooltip")).to_contain_text("(in 10 min)")
        looked_at(page, "server-rendered")
    with opened(browser, "about:blank", java_script_enabled=False) as page:
        page.goto(url)
        expect(page.locator(WIDGET)).to_contain_text(UPDATED)
        assert "· Next run: " in page.content()
        assert page.locator("noscript").bounding_box(), "it is to be seen"
        pictured(page, "without-scripts")


@pytest.mark.slow
def test_without_a_first_state_nothing_is_claimed_before_the_answer(
    browser: Browser, script: tuple[Script, str]
) -> None:
    _, url = script
    with opened(browser, "about:blank") as page:
        page.route("**/pipeline_status*", lambda route: None)
        page.goto(url)
        page.wait_for_timeout(1_500)
        expect(label(page)).to_have_text("")


@pytest.mark.slow
def test_a_page_from_a_cache_blocks_nobody(browser: Browser, script: tuple[Script, str]) -> None:
    said, url = script
    said.elements = status_html(document(**BLOCKING))
    said.fails = True
    with opened(browser, url) as page:
        expect(label(page)).to_have_text("Maintenance in progress")
        page.wait_for_timeout(1_000)
        expect(dialog(page)).to_be_hidden()


@pytest.mark.slow
@pytest.mark.parametrize("place", ["start", "end"])
@pytest.mark.parametrize("edge", ["top", "bottom"])
def test_the_tooltip_stays_inside_the_window(
    browser: Browser, script: tuple[Script, str], edge: str, place: str
) -> None:
    _, url = script
    with opened(browser, url, viewport=PHONE) as page:
        page.add_style_tag(
            content=f"nav {{ position: fixed; {edge}: 0; inset-inline-{place}: 0; padding: 0; gap: 0; width: auto; "
            f"overflow: hidden; transform: translateZ(0); }} h1 {{ position: absolute; opacity: 0; }}"
        )
        expect(label(page)).to_have_text(UPDATED)
        page.locator(f"{WIDGET} [part=info]").hover()
        tip = page.get_by_role("tooltip")
        expect(tip).to_be_visible()
        box = tip.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["y"] >= 0
        assert box["x"] + box["width"] <= PHONE["width"]
        assert box["y"] + box["height"] <= PHONE["height"]
        looked_at(page, f"tooltip-{edge}-{place}")
        page.mouse.move(box["x"] + 5, box["y"] + 5)  # people read it with the pointer on it
        page.wait_for_timeout(500)
        expect(tip).to_be_visible()
        page.mouse.move(180, 320)
        expect(tip).to_be_hidden()


@pytest.mark.slow
def test_forced_colours_leave_everything_visible(browser: Browser, script: tuple[Script, str]) -> None:
    said, url = script
    with opened(browser, url, forced_colors="active", viewport=DESK) as page:
        expect(label(page)).to_have_text(UPDATED)
        canvas, text = page.evaluate(
            """() => { const probe = document.body.appendChild(document.createElement("i"));
            probe.style.cssText = "background: Canvas; color: CanvasText";
            const { backgroundColor, color } = getComputedStyle(probe); return [backgroundColor, color]; }"""
        )

        def style(part: str, name: str) -> Any:
            found = page.locator(f"{WIDGET} {part}").first
            return found.evaluate(f"element => getComputedStyle(element).{name}")

        assert style("[part=mark]", "stroke") == text
        looked_at(page, "forced-1-idle")
        said.say(**BLOCKING, maintenance_started_at=moment(-30))
        expect(dialog(page)).to_be_visible()
        assert style("[part=progress] div", "backgroundColor") not in (canvas, "rgba(0, 0, 0, 0)")
        assert style("[part=progress]", "borderTopStyle") == "solid"
        looked_at(page, "forced-2-blocking")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lang", "updated", "title"),
    [
        ("de-CH", "Datenstand: 2026-11-15 03:30 CET", "Wartung läuft"),
        ("fr", "Données mises à jour : 2026-11-15 03:30 CET", "Maintenance en cours"),
        ("it-CH", "Dati aggiornati: 2026-11-15 03:30 CET", "Manutenzione in corso"),
        ("pt", UPDATED, "Maintenance in progress"),
    ],
)
def test_it_speaks_the_language_of_the_page(
    browser: Browser, script: tuple[Script, str], lang: str, updated: str, title: str
) -> None:
    said, url = script
    said.lang = lang
    with opened(browser, url, viewport=PHONE) as page:
        expect(label(page)).to_have_text(updated)
        said.say(**BLOCKING, maintenance_started_at=moment(-30))
        expect(dialog(page).locator("h2")).to_have_text(title)
        looked_at(page, f"language-{lang}")


@pytest.mark.slow
def test_one_dialog_on_a_page(browser: Browser, script: tuple[Script, str]) -> None:
    said, url = script
    said.elements = ELEMENT * 2
    said.say(**BLOCKING, maintenance_started_at=moment(-30))
    with opened(browser, url) as page:
        shown = page.locator(f"{WIDGET} dialog[open]")
        expect(shown).to_have_count(1)
        page.wait_for_timeout(1_500)
        expect(shown).to_have_count(1)
        page.evaluate("document.querySelector('fencepost-status').remove()")
        expect(shown).to_have_count(1)  # the other one takes over
        said.say()
        expect(shown).to_have_count(0)
