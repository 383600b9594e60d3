"""Choosing jobs by a text: `tag:nightly`, `owner:billing`, `priority:5..`, or a name with `*` in it."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from fencepost.errors import UsageError
from fencepost.model.job_fields import HIGHEST_PRIORITY
from fencepost.model.jobs import Job
from fencepost.settings import did_you_mean

KINDS = ("tag", "owner", "priority", "id")
_PRIORITIES = re.compile(r"(?P<only>-?\d{1,3})|(?P<least>-?\d{1,3})?\.\.(?P<most>-?\d{1,3})?")


def selects(text: str, job: Job) -> bool:
    """Whether this text chooses the job."""
    kind, wanted = parsed(text)
    if kind == "tag":
        return wanted in job.tags
    if kind == "owner":
        return wanted.casefold() == job.owner.casefold()
    if kind == "priority":
        least, most = priorities_of(wanted)
        return least <= job.priority <= most
    return fnmatchcase(job.id, wanted)


def parsed(text: str) -> tuple[str, str]:
    """What is compared, and with what. Ids may contain a colon: only the kinds listed here stand before one."""
    kind, colon, wanted = text.partition(":")
    if colon and kind in KINDS:
        if not wanted:
            raise UsageError(
                f"{text!r} names no {kind}; write {kind}:{'5' if kind == 'priority' else 'NAME'}"
            )
        if kind == "priority":
            priorities_of(wanted)
        return kind, wanted
    if colon and (hint := did_you_mean(kind, KINDS)):
        raise UsageError(
            f"{text!r}: jobs are chosen by tag:NAME, owner:NAME, priority:N or a name with *{hint}"
        )
    return "id", text


def priorities_of(text: str) -> tuple[int, int]:
    """`5`: only this one; `5..`: from there up; `..-1`, `1..9`."""
    found = _PRIORITIES.fullmatch(text)
    if not found or text == "..":
        raise UsageError(f"{text!r} is no priority; write 5, or 5.. for 5 and above, ..-1 for -1 and below")
    only, least, most = found["only"], found["least"], found["most"]
    return int(only or least or -HIGHEST_PRIORITY), int(only or most or HIGHEST_PRIORITY)
