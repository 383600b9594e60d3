"""A notice in plain English, written once; each channel for people escapes it in its own way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

from fencepost.model.notices import Notice
from fencepost.model.triggers import from_iso

MOST_LISTED = 30
"""Notices of a digest that get a line."""
LONGEST_LINE = 500
LONGEST_OUTPUT = 2_000

_SENTENCES = {
    "failed": "{job} failed",
    "missed": "{job} did not run: a fire was missed",
    "late": "{job} is late",
    "lost": "{job} was cut off: its replica died",
    "recovered": "{job} works again",
    "failed_in_a_row": "{job} failed {count} times in a row",
    "no_success": "{job} has not succeeded for too long",
    "overflow": "{count} more notices are not listed: more arose than this channel could take",
    "started": "{job} started",
    "succeeded": "{job} succeeded",
    "test": "Test message: this channel works",
}


@dataclass(frozen=True)
class Message:
    subject: str
    lines: tuple[str, ...]
    output: str = ""
    """The end of what the run printed; may have several lines."""
    link: str | None = None
    """To the dashboard."""


def message_for(notices: Sequence[Notice]) -> Message:
    if len(notices) == 1:
        [notice] = notices
        output = _text(notice.details.get("output_end"))[-LONGEST_OUTPUT:]
        return Message(sentence(notice), _facts(notice), output, link_to(notice))
    listed = tuple(_line(each) for each in notices[:MOST_LISTED])
    more = len(notices) - len(listed)
    jobs = len({each.job_id for each in notices})
    subject = f"{len(notices)} notices of {'one job' if jobs == 1 else f'{jobs} jobs'}"
    return Message(subject, listed + ((f"… and {more} more",) if more else ()), "", _dashboard(notices[0]))


def sentence(notice: Notice) -> str:
    text = _SENTENCES.get(notice.cause, "{job}: {cause}")
    return text.format(job=notice.job_id, count=notice.count, cause=notice.cause.replace("_", " "))


def link_to(notice: Notice) -> str | None:
    """The page of the fire, or of the job; None where the setting `dashboard_url` is not set."""
    base = _dashboard(notice)
    if base is None or notice.cause == "test":
        return base
    return f"{base}/fires/{_part(notice.fire)}" if notice.fire else f"{base}/jobs/{_part(notice.job_id)}"


def _dashboard(notice: Notice) -> str | None:
    found = notice.details.get("dashboard_url")
    return found if isinstance(found, str) else None


def _part(text: str) -> str:
    return quote(text, safe="")


def _line(notice: Notice) -> str:
    why = notice.error or notice.reason
    return _one_line(f"{_moment(notice.at)}  {sentence(notice)}" + (f": {why}" if why else ""))


def _facts(notice: Notice) -> tuple[str, ...]:
    details = notice.details
    attempt = details.get("attempt")
    pairs = (
        ("Error", notice.error),
        ("Reason", notice.reason),
        ("Failures in a row", notice.count if notice.cause == "failed" and notice.count > 1 else None),
        ("Failures before", notice.count if notice.cause == "recovered" and notice.count > 1 else None),
        ("Fire", notice.fire),
        ("Fires", details.get("fires") if details.get("fires") != 1 else None),
        ("Due", _known(details.get("due_at"))),
        ("Started", _known(details.get("started_at"))),
        ("Attempt", attempt if isinstance(attempt, int) and attempt > 1 else None),
        ("Replica", details.get("replica")),
        ("Last success", _known(details.get("last_success_at")) if notice.cause != "recovered" else None),
        ("Noticed" if notice.cause in ("missed", "late", "lost", "no_success") else "At", _moment(notice.at)),
    )
    return tuple(_one_line(f"{name}: {value}") for name, value in pairs if value)


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _known(text: object) -> str | None:
    """A time of the details."""
    try:
        return _moment(from_iso(text)) if isinstance(text, str) else None
    except ValueError:
        return None


def _one_line(text: str) -> str:
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"


def _text(value: object) -> str:
    """Lines, without what would steer a terminal."""
    if not isinstance(value, str):
        return ""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else " " for letter in value)
