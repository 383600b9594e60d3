"""The widget's first state as HTML: for plain Python, Jinja2 and Django, from a real store."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import django
import pytest
from django.conf import settings
from django.template import Context, Engine
from django.utils import timezone, translation
from jinja2 import Environment

from fencepost import Pipeline, Scheduler, every
from fencepost.errors import ConfigurationError, StoreUnavailable, UsageError
from fencepost.web.widget import StatusTag, script, status_html
from fencepost.web.widget import tag as tag_module
from fencepost.web.widget.render import languages

DOCUMENT: dict[str, Any] = {
    "job_id": "stops",
    "status": "idle",
    "blocking_maintenance": False,
    "data_updated_at": "2026-11-15T02:30:00.000000Z",
    "next_run_at": "2026-11-15T12:10:00.000000Z",
    "now": "2026-11-15T12:00:00.000000Z",
    "last_error": "password=hunter2",
}


def text_of(html: str) -> str:
    return unescape(re.sub("<noscript>.*?</noscript>|<[^>]*>", "", html)).replace("\u00a0", " ")


@pytest.fixture(scope="module")
def stopped() -> Iterator[Scheduler]:
    """A pipeline that has run once."""
    pipeline = Pipeline("stops")

    @pipeline.phase("match")
    def match() -> None: ...

    scheduler = Scheduler("memory://", heartbeat=0.2, leader_ttl=1, run_ttl=2)
    scheduler.job(every(days=300), id="stops")(pipeline)

    async def run() -> None:
        await scheduler.start()
        await (await scheduler.trigger("stops")).wait(timeout=60)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(run())
    yield scheduler
    loop.run_until_complete(scheduler.stop())
    loop.close()


@pytest.mark.parametrize(
    ("changes", "label"),
    [
        ({}, "Data updated: 2026-11-15 03:30 CET"),
        ({"data_updated_at": None}, "Not updated yet"),
        ({"status": "running"}, "Update running in the background"),
        ({"status": "running", "blocking_maintenance": True}, "Maintenance in progress"),
        ({"status": "failed"}, "Last update failed. Data from 2026-11-15 03:30 CET"),
        ({"status": "failed", "data_updated_at": None}, "Last update failed"),
    ],
)
def test_every_state_has_its_label(changes: dict[str, Any], label: str) -> None:
    html = status_html({**DOCUMENT, **changes}, time_zone="Europe/Zurich")
    assert text_of(html) == label
    assert 'title="Next run: 2026-11-15 13:10 CET (in 10' in html


@pytest.mark.parametrize(
    ("zone", "shown"),
    [
        ("America/New_York", "2026-11-14 21:30 GMT-5"),
        ("Asia/Kolkata", "2026-11-15 08:00 GMT+5:30"),
        ("Europe/London", "2026-11-15 02:30 GMT"),
        (None, "2026-11-15 02:30 UTC"),
    ],
)
def test_times_are_written_as_the_browser_writes_them(zone: str | None, shown: str) -> None:
    assert text_of(status_html(DOCUMENT, time_zone=zone)) == f"Data updated: {shown}"


def test_the_first_state_goes_along_without_errors_and_as_text() -> None:
    nasty = '"><script>alert(1)</script>'
    html = status_html(DOCUMENT, texts={"updated": f"{nasty}{{time}}"}, job=nasty)
    assert "<script>" not in html
    first = json.loads(unescape(re.search(' status="([^"]*)"', html)[1]))  # type: ignore[index]
    assert first["data_updated_at"] == DOCUMENT["data_updated_at"]
    assert "hunter2" not in html
    assert status_html(None, time_zone="Europe/Zurich") == (
        '<fencepost-status time-zone="Europe/Zurich"></fencepost-status>'
    )


def test_wrong_attributes_are_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="no attribute 'timezone'; did you mean 'time-zone'"):
        StatusTag(Scheduler("memory://"), timezone="Europe/Zurich")
    with pytest.raises(ConfigurationError, match="no time zone 'Zurich'"):
        status_html(DOCUMENT, time_zone="Zurich")


def test_every_language_has_every_text_with_its_places() -> None:
    def places(text: str) -> list[str]:
        return sorted(re.findall(r"{\w+}", text))

    english = languages()["en"]
    assert set(languages()) == {"en", "de", "fr", "it"}
    for texts in languages().values():
        assert {name: places(text) for name, text in texts.items()} == {
            name: places(text) for name, text in english.items()
        }
    assert text_of(status_html(DOCUMENT, lang="de-CH")).startswith("Datenstand: ")
    assert text_of(status_html(DOCUMENT, lang="pt")).startswith("Data updated: ")


def test_plain_python_and_jinja(stopped: Scheduler) -> None:
    tag = StatusTag(stopped, "stops", time_zone="Europe/Zurich")
    assert text_of(tag()).startswith("Data updated: 20")
    page = Environment(autoescape=True).from_string("<nav>{{ status(lang='it') }}</nav>").render(status=tag)
    assert page.startswith('<nav><fencepost-status job="stops" time-zone="Europe/Zurich" lang="it"')
    assert text_of(page).startswith("Dati aggiornati: 20")


def test_a_coroutine_reads_first(stopped: Scheduler) -> None:
    tag = StatusTag(stopped)  # the only pipeline

    async def handler() -> str:
        with pytest.raises(UsageError, match=r"await tag.read\(\)"):
            tag()
        return tag(await tag.read())

    assert text_of(asyncio.run(handler())).startswith("Data updated: 20")


def test_django(stopped: Scheduler) -> None:
    if not settings.configured:
        settings.configure(USE_TZ=True, TIME_ZONE="UTC", USE_I18N=True)
        django.setup()
    settings.FENCEPOST = {"SCHEDULER": stopped}
    engine = Engine(libraries={"fencepost": "fencepost.web.widget.django"})
    template = engine.from_string(
        "{% load fencepost %}<nav>{% fencepost_status job='stops' theme='dark' %}</nav>"
    )
    with translation.override("fr"), timezone.override("Europe/Zurich"):
        page = template.render(Context())
    assert text_of(page).startswith("Données mises à jour : 20")
    assert 'theme="dark" lang="fr" time-zone="Europe/Zurich"' in page


def test_a_store_that_does_not_answer_leaves_the_element_empty(
    stopped: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*_: object) -> Any:
        raise StoreUnavailable("gone")

    async def slow(*_: object) -> Any:
        await asyncio.sleep(30)

    for broken in (lost, slow):
        monkeypatch.setattr(tag_module, "PATIENCE", 0.05)
        tag = StatusTag(stopped, "stops")
        asked: list[int] = []

        def look(_: Scheduler, __: str | None, broken: Any = broken, asked: list[int] = asked) -> Any:
            asked.append(1)
            return broken()

        monkeypatch.setattr("fencepost.pipeline.status.status_of_pipeline", look)
        assert tag() == '<fencepost-status job="stops"></fencepost-status>'
        assert tag() == asyncio.run(_read(tag))
        assert asked == [1], "pages do not wait again and again"


async def _read(tag: StatusTag) -> str:
    return tag(await tag.read())


def test_an_unknown_job_is_logged_once(stopped: Scheduler, caplog: pytest.LogCaptureFixture) -> None:
    tag = StatusTag(stopped, "stop")
    assert tag() == '<fencepost-status job="stop"></fencepost-status>'
    assert "did you mean 'stops'" in caplog.text


def test_the_script_is_one_module() -> None:
    text = script().decode()
    assert text.startswith("const TEXTS = {")
    assert text.count("\nexport ") == 1
    assert "import " not in re.sub("//.*", "", text)
