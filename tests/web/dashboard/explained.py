"""Every state of a job and of a fire, and the words in which each page must give the reason for it."""

from __future__ import annotations

from urllib.parse import quote

import httpx2

from fencepost.model import Reason
from tests.web.dashboard.past import UNKNOWN
from tests.web.dashboard.walking import newest

Words = tuple[str, ...]

ORPHANED = "no live replica knows its task since 20"
CONFLICT = "declares it from tests.web.dashboard.rival"
TORN, MARS = "Expecting value: line 1", "Mars/Phobos"
REMOVE = "fencepost jobs rm torn"

PAGES: dict[str, Words] = {
    "/jobs?state=orphaned": ("forsaken", "orphaned", ORPHANED),
    "/jobs?state=conflict": ("far", "conflict", CONFLICT),
    "/jobs?state=unreadable": ("torn", "martian", "unreadable", TORN, MARS, "not known"),
    "/jobs?state=paused": ("mailing", "paused", "<b>moving</b>"),
    "/jobs/forsaken": ("orphaned", f"Orphaned: {ORPHANED}", str(Reason.UNKNOWN_TASK)),
    "/jobs/far": ("conflict", "Conflict: ", CONFLICT),
    "/jobs/martian": ("unreadable", MARS, "hosts that know it go on"),
    "/jobs/torn": ("job torn cannot be read here", TORN, REMOVE),
    "/jobs/strict": ("missed", str(Reason.MISFIRE)),
    "/cluster": (
        f"no live replica knows the task {UNKNOWN}, since 20",
        "declares it, too: give one application another namespace",
        "job torn",
        REMOVE,
        "job martian",
        MARS,
    ),
    "/doctor": (
        f"forsaken is orphaned: {ORPHANED}",
        "far is declared by two applications: from tests.web.apps.many",
        "job torn cannot be read here: ",
        REMOVE,
        "job martian cannot be read here: ",
        MARS,
    ),
}

FIRES: dict[tuple[str, str, Reason], str] = {
    (
        "strict",
        "missed",
        Reason.MISFIRE,
    ): "nobody could start it within 30 s, and the misfire policy is 'skip'",
    ("patient", "missed", Reason.COALESCED): "it was coalesced into patient@",
    (
        "forsaken",
        "missed",
        Reason.UNKNOWN_TASK,
    ): f"no live replica had known the task '{UNKNOWN}' for an hour",
    ("withdrawn", "cancelled", Reason.REMOVED): "It was cancelled: job removed",
    ("queued", "cancelled", Reason.REQUESTED): "It was cancelled: on request of api",
    ("mailing", "skipped", Reason.PAUSED): 'by api, "<b>moving</b>"',
    ("slow", "skipped", Reason.OVERLAP): "was still active, from 20",
    ("broken", "failed", Reason.RAISED): "It ran and failed: ",
    ("stuck", "failed", Reason.TIMED_OUT): "It ran and failed: ",
    ("on-the-leader", "lost", Reason.REPLICA_DIED): "died in mid-run",
}
"""By job, state and reason: from the sentence of the fire's page."""


def explained(client: httpx2.Client) -> dict[str, Words]:
    """By path: what must be read there."""
    found = dict(PAGES)
    for (job, state, reason), sentence in FIRES.items():
        key = newest(client, job, state, reason=reason)
        found[f"/fires/{quote(key)}"] = (state, str(reason), sentence)
        if state in ("missed", "cancelled"):
            found[f"/fires?job={job}&state={state}"] = (job, state, str(reason))
    return found
