"""The table of events in the guide lists exactly those that `@scheduler.on` takes."""

from __future__ import annotations

import re
from pathlib import Path

from fencepost.runs.events import OTHER_EVENTS, RUN_EVENTS

PAGE = Path(__file__).parents[2] / "docs" / "dynamic-jobs.md"


def test_the_table_lists_every_event_once() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("\n## Events\n")[2]
    listed = re.findall(r"^\| `([a-z_.]+)` \|", section, re.MULTILINE)
    assert sorted(listed) == sorted(RUN_EVENTS + OTHER_EVENTS)
