"""A status document as the HTML that a page shows until its script has been loaded, and without one for good."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache
from html import escape
from importlib import resources
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fencepost.errors import ConfigurationError
from fencepost.settings import did_you_mean

ATTRIBUTES = ("src", "job", "time-zone", "locale", "lang", "texts", "overlay", "live", "theme", "class", "id")
FIRST = ("job_id", "status", "blocking_maintenance", "data_updated_at", "next_run_at", "now")
"""The fields of the document that the label needs. The browser requests the rest, such as errors, with its own role."""
NAMED_ZONES = frozenset({"UTC", "GMT", "BST", "CET", "CEST", "EET", "EEST", "WET", "WEST"})
"""Those that browsers name like this; they write others as GMT-5."""


class Html(str):
    """Markup that template engines (Jinja2, Django, Mako) do not escape again."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


def status_html(status: Mapping[str, Any] | None, **attributes: Any) -> Html:
    """`<fencepost-status>` filled with this document; None: the browser fills it. Attributes are those of the element,
    with `_` for `-`: `time_zone="Europe/Zurich"`. A dict is written as JSON."""
    given = {_attribute(name): value for name, value in attributes.items() if value is not None}
    inner = "" if status is None else _inner(status, given)
    if status is not None:
        given["status"] = {name: status.get(name) for name in FIRST}
    texts = (
        f' {name}="{escape(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))}"'
        for name, value in given.items()
    )
    return Html(f"<fencepost-status{''.join(texts)}>{inner}</fencepost-status>")


@cache
def languages() -> Mapping[str, Mapping[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(
        resources.files("fencepost.web.widget").joinpath("texts.json").read_text("utf-8")
    )
    return found


def _attribute(name: str) -> str:
    name = name.rstrip("_").replace("_", "-")  # `class` is a word of Python
    if name not in ATTRIBUTES:
        hint = did_you_mean(name, ATTRIBUTES) or f"; there are {', '.join(ATTRIBUTES)}"
        raise ConfigurationError(f"<fencepost-status> has no attribute {name!r}{hint}")
    return name


def _inner(status: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """The label, with the next run as its tooltip; spelled out where no script can show one."""
    own = given.get("texts") or {}
    texts = {**_texts(given.get("lang")), **(json.loads(own) if isinstance(own, str) else own)}
    zone = _zone(given.get("time-zone") or "UTC")
    label = escape(_label(status, texts, zone))
    if not status.get("next_run_at"):
        return f"<span>{label}</span>"
    next_run = escape(_next_run(status, texts, zone))
    return f'<span title="{next_run}">{label}</span><noscript> · {next_run}</noscript>'


def _texts(lang: str | None) -> Mapping[str, str]:
    known = languages()
    return known.get((lang or "en").lower().partition("-")[0], known["en"])


def _label(status: Mapping[str, Any], texts: Mapping[str, str], zone: ZoneInfo) -> str:
    updated = status.get("data_updated_at")
    time = _time(updated, zone) if updated else ""
    if status["status"] == "running":
        return texts["blocking" if status["blocking_maintenance"] else "running"]
    if status["status"] == "failed":
        return _fill(texts["failed"], time=time) if updated else texts["failedNone"]
    return _fill(texts["updated"], time=time) if updated else texts["none"]


def _next_run(status: Mapping[str, Any], texts: Mapping[str, str], zone: ZoneInfo) -> str:
    ahead = datetime.fromisoformat(status["next_run_at"]) - datetime.fromisoformat(status["now"])
    distance = texts["now"]
    if ahead >= timedelta(seconds=1):
        distance = _fill(texts["ahead"], length=_length(ahead.total_seconds(), texts))
    return _fill(texts["nextRunAt"], time=_time(status["next_run_at"], zone), distance=distance)


def _length(seconds: float, texts: Mapping[str, str]) -> str:
    units = ((86_400, "days"), (3_600, "hours"), (60, "minutes"), (1, "seconds"))
    size, unit = next((size, unit) for size, unit in units if seconds >= size)
    return _fill(texts[unit], n=str(int(seconds / size + 0.5)))


def _time(text: str, zone: ZoneInfo) -> str:
    """As the browser will write it: `2026-11-15 03:30 CET`, `2026-11-14 21:30 GMT-5`."""
    local = datetime.fromisoformat(text).astimezone(zone)
    return f"{local:%Y-%m-%d %H:%M} {_zone_name(local)}"


def _zone_name(local: datetime) -> str:
    name, offset = local.tzname() or "", local.utcoffset() or timedelta()
    if name in NAMED_ZONES:
        return name
    hours, minutes = divmod(abs(offset) // timedelta(minutes=1), 60)
    sign = "-" if offset < timedelta() else "+"
    return f"GMT{sign}{hours}" + (f":{minutes:02}" if minutes else "")


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ConfigurationError(
            f"there is no time zone {name!r}; give an IANA name, such as Europe/Zurich"
        ) from error


def _fill(text: str, **values: str) -> str:
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text
