"""Every relative link of a Markdown page leads to a file that is there, and every anchor to a heading."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page
    for folder in (".", "docs", "examples", "deploy")
    for page in ((ROOT / folder).glob("*.md") if folder == "." else (ROOT / folder).rglob("*.md"))
)
CODE = re.compile(r"^ *(```+)[^\n]*\n.*?^ *\1 *$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


@cache
def text_of(page: Path) -> str:
    return CODE.sub("", page.read_text(encoding="utf-8"))


@cache
def anchors_of(page: Path) -> frozenset[str]:
    """As GitHub and the site make them."""
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in HEADING.findall(text_of(page)))
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_its_links_lead_somewhere(page: Path) -> None:
    dead = []
    for link in LINK.findall(text_of(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors_of(target)):
            dead.append(link)
    assert dead == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_it_has_no_marks_of_a_merge(page: Path) -> None:
    assert re.findall(r"^(?:<{7}|>{7}) .*$", page.read_text(encoding="utf-8"), re.MULTILINE) == []


def test_each_decision_is_listed_once_and_in_order() -> None:
    records = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))
    listed = re.findall(
        r"^\| \[\d+\]\(([^)]+)\) \|", text_of(ROOT / "docs/decisions/README.md"), re.MULTILINE
    )
    assert listed == [record.name for record in records]


def test_there_are_links() -> None:
    assert sum(len(LINK.findall(text_of(page))) for page in PAGES) > 300
