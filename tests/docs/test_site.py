"""The built site: what newcomers ask is answered within two clicks of the front page. `make docs` runs this."""

from __future__ import annotations

import os
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest

SITE = Path(os.environ.get("BUILT_SITE", "not built"))
"""As `make docs` has just built it: an older one says nothing."""
QUESTIONS = {
    "how do I back it up": ("back it up", "back-up"),
    "two applications on one Redis": ("one redis", "namespaces-one-store-several-applications"),
    "how am I told": ("how am i told", "alerts"),
    "run something in ten minutes": ("in ten minutes, or once", "once-later"),
    "Django": ("django", "from-nothing"),
    "upgrade": ("upgrade without", "step-by-step"),
    "why did 03:00 not run": ("03:00", "why"),
    "uninstall": ("remove it", "uninstall"),
    "test my jobs": ("test my jobs", "in-virtual-time"),
    "run on Kubernetes": ("on kubernetes", "the-chart"),
}
"""By question: words of the row on the front page, and the anchor of the heading that answers it."""

pytestmark = pytest.mark.skipif(not SITE.exists(), reason="the site is not built: make docs")


class Page(HTMLParser):
    """Links and anchors of an article, without the navigation around it; links by the row of a table they are in."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[tuple[str, list[str]]] = [("", [])]
        self.anchors: set[str] = set()
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self._inside |= tag == "article"
        if not self._inside:
            return
        if tag == "tr":
            self.rows.append(("", []))
        if tag == "a" and (href := given.get("href")):
            self.rows[-1][1].append(href)
        if identifier := given.get("id"):
            self.anchors.add(identifier)

    def handle_endtag(self, tag: str) -> None:
        self._inside &= tag != "article"

    def handle_data(self, data: str) -> None:
        if self._inside:
            text, links = self.rows[-1]
            self.rows[-1] = (f"{text} {data}", links)

    @property
    def links(self) -> list[str]:
        return [link for _, links in self.rows for link in links]


@cache
def page(path: str) -> Page | None:
    """By its path in the site; None: it leads elsewhere."""
    file = SITE / path.lstrip("/")
    file = file / "index.html" if file.is_dir() or path.endswith("/") else file
    return Page(file.read_text(encoding="utf-8")) if file.suffix == ".html" and file.exists() else None


def followed(path: str, link: str) -> str:
    return urlsplit(urljoin(f"https://site{path}", link)).path


@pytest.mark.parametrize("question", QUESTIONS)
def test_it_is_answered_within_two_clicks(question: str) -> None:
    words, anchor = QUESTIONS[question]
    front = page("/")
    assert front is not None
    row = next(links for text, links in front.rows if words in re.sub(r"\s+", " ", text).lower())
    first = [(path, found) for link in row if (found := page(path := followed("/", link))) is not None]
    assert first
    second = [page(followed(path, link)) for path, found in first for link in found.links]
    reached = [found for _, found in first] + [found for found in second if found is not None]
    assert any(anchor in found.anchors for found in reached)


def test_machines_find_the_pages() -> None:
    listed = re.findall(r"\]\((\S+)\)", (SITE / "llms.txt").read_text(encoding="utf-8"))
    assert len(listed) > 15
    for link in listed:
        assert (SITE / urlsplit(link).path.removeprefix("/fencepost/")).exists(), link


def test_histories_can_be_downloaded() -> None:
    report = page("/proof/")
    assert report is not None
    files = [link for link in report.links if link.endswith(".jsonl.gz")]
    assert files
    for link in files:
        assert (SITE / followed("/proof/", link).lstrip("/")).exists(), link
