"""Templates: everything that is put into one is escaped, unless this package has made it as markup."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from fencepost.insight.views.words import distance, length, roughly
from fencepost.insight.visible import UNSEEN
from fencepost.model.triggers import from_iso, iso
from fencepost.web.dashboard.view import View

LONGEST_JSON = 20_000
KINDS: Mapping[str, str] = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("fencepost.web.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "length": length_of,
        "json": as_json,
        "count": counted,
        "count_of": len,
        "code": with_code,
        "late": lateness,
    }
    made.globals |= {"icon": icon, "asset": asset_name, "plural": plural, "UNSEEN": UNSEEN}
    return made


@cache
def warm() -> None:
    """Compile all templates now: later it would keep heartbeats waiting."""
    for name in environment().list_templates():
        environment().get_template(name)


def rendered(
    template: str, view: View, now: datetime | None, as_of: datetime | None = None, **values: Any
) -> Markup:
    """`now`: by the store's clock; the texts of times count from it. `as_of`: if what is shown was read before that.
    The script reads the page again until it is not older than what was last heard of."""
    tools = {
        "view": view,
        "link": view.link,
        "same": view.same,
        "job_link": view.job,
        "fire_link": view.fire,
        "now": now,
        "time": lambda moment, job_zone=None: time_tag(view, moment, now, job_zone),
        "ago": lambda moment, job_zone=None: time_tag(view, moment, now, job_zone, past=True),
        "at": lambda moment, job_zone=None: at_tag(view, moment, job_zone),
    }
    body = environment().get_template(template).render(**tools, **values)
    if now is None:
        return Markup(body)
    clock = '<span hidden data-now="{}" data-as-of="{}"></span>'
    return Markup(body) + Markup(clock).format(iso(now), iso(min(now, as_of or now)))


@cache
def asset(name: str) -> bytes:
    """A file of `static/`, by the name it has there."""
    return (files("fencepost.web.dashboard") / "static" / name).read_bytes()


@cache
def asset_name(name: str) -> str:
    """With a part that changes with its content, so that browsers may keep it for good."""
    stem, _, kind = name.rpartition(".")
    return f"{stem}.{sha256(asset(name)).hexdigest()[:12]}.{kind}"


def moment_of(value: datetime | str | None) -> datetime | None:
    return from_iso(value) if isinstance(value, str) else value


def time_tag(
    view: View,
    value: datetime | str | None,
    now: datetime | None,
    job_zone: str | None = None,
    past: bool = False,
) -> Markup:
    """The distance from now, with the time itself as a tooltip. The script keeps it up to date. `past`: the moment is
    never shown as ahead, even if it was read a little after `now`."""
    moment = moment_of(value)
    if moment is None:
        return Markup("")
    if now is None:
        text, counting = view.zones.text(moment, job_zone), Markup("")
    else:
        text = "now" if not past and moment <= now else roughly(min(moment, now) if past else moment, now)
        counting = Markup(" data-ago") if past else Markup(" data-in")
    return Markup('<time datetime="{}" title="{}"{}>{}</time>').format(
        moment.isoformat(), view.zones.text(moment, job_zone), counting, text
    )


def at_tag(view: View, value: datetime | str | None, job_zone: str | None = None) -> Markup:
    """The time itself."""
    moment = moment_of(value)
    if moment is None:
        return Markup("")
    text = view.zones.text(moment, job_zone)
    return Markup('<time datetime="{}">{}</time>').format(moment.isoformat(), text)


def icon(name: str) -> Markup:
    """A mark whose shape says what its colour says."""
    return Markup('<svg class="i {0}" aria-hidden="true"><use href="#i-{0}"/></svg>').format(
        str(name).replace(" ", "-")
    )


def length_of(value: float | timedelta | None) -> str:
    if value is None:
        return ""
    return length(value if isinstance(value, timedelta) else timedelta(seconds=value))


def lateness(seconds: float | None) -> str:
    """`on time` within a tenth of a second, which is what is promised."""
    if seconds is None:
        return ""
    return "on time" if seconds < 0.1 else f"{length_of(seconds)} late"


def as_json(value: Any) -> str:
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST_JSON else f"{text[:LONGEST_JSON]}\n… {len(text):,} characters in all"


def with_code(text: str) -> Markup:
    """What stands between backticks, as code."""
    parts = [
        Markup("<code>{}</code>").format(part) if place % 2 else escape(part)
        for place, part in enumerate(text.split("`"))
    ]
    return Markup("").join(parts)


def counted(number: int) -> str:
    return f"{number:,}".replace(",", "\N{THIN SPACE}") if number >= 10_000 else str(number)


def plural(number: int, one: str, many: str = "") -> str:
    return f"{counted(number)} {one if number == 1 else many or one + 's'}"


__all__ = ["asset", "asset_name", "distance", "environment", "escape", "rendered"]
