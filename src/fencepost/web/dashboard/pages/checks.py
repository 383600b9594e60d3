"""Audit, doctor and history: what they find, and how to fix it. Made on the server's loop: an audit goes
on in the background, and a page shows its progress."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from fencepost.web import models, pictures
from fencepost.web.dashboard.page import Page
from fencepost.web.dashboard.pages.acting import checked
from fencepost.web.dashboard.render import rendered
from fencepost.web.dashboard.view import View
from fencepost.web.endpoint import Call
from fencepost.web.history import history as history_read

KINDS = {
    "unaccounted": "Due, and in no row of the ledger",
    "doubled": "In two rows, or run again before the earlier run had ended",
    "outside": "In the ledger, and in no calendar",
    "pause_ignored": "Claimed although the job was paused",
    "tokens": "A fencing token that does not increase",
    "overdue": "Due for too long, and not decided",
}
MOST = 100
ROWS = 200


async def audit(view: View, request: Request) -> Page:
    asked = {name: view.asked(name) for name in ("since", "until", "job")}
    found = None
    if "run" in view.query or any(asked.values()):
        since, until, job = (asked[name] or None for name in ("since", "until", "job"))
        found = await view.web.audits.answer(view.caller, since, until, job)
    report = found["report"] if found else None
    main = rendered(
        "audit.html",
        view,
        None,
        asked=asked,
        found=found,
        report=report,
        findings=[
            (kind, text, report[kind][:MOST], report["found"].get(kind, 0)) for kind, text in KINDS.items()
        ]
        if report
        else [],
    )
    return Page("Audit", main, "Audit")


async def history(view: View, request: Request) -> Page:
    """Who did what, newest first."""
    asked = {name: view.asked(name) for name in ("since", "job", "by")}
    given = {name: value for name, value in asked.items() if value}
    query = checked(models.HistoryAsked, **{"since": "7d", "limit": ROWS, **given})
    found = await history_read(Call(view.web, request, {}, query, None))
    main = rendered("history.html", view, None, found=found, asked=asked)
    return Page("History", main, "History")


async def doctor(view: View, request: Request) -> Page:
    found: dict[str, Any] = await pictures.doctor(Call(view.web, request, {}, None, None))
    sections: dict[str, list[dict[str, Any]]] = {}
    for finding in found["findings"]:
        sections.setdefault(finding["section"], []).append(finding)
    order = {"problem": 0, "warning": 1, "ok": 2}
    for findings in sections.values():
        findings.sort(key=lambda finding: order.get(finding["level"], 3))
    worst = sorted(sections.items(), key=lambda section: order.get(section[1][0]["level"], 3))
    main = rendered("doctor.html", view, None, found=found, sections=dict(worst))
    return Page("Doctor", main, "Doctor")
