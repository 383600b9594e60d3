"""The search field: a job, a fire, or "report 03:00", which asks why."""

from __future__ import annotations

import re

from fencepost.insight.visible import VisibleStore
from fencepost.store.base import FireQuery, JobPage
from fencepost.web.dashboard.page import Page
from fencepost.web.dashboard.render import rendered
from fencepost.web.dashboard.view import View
from fencepost.web.models import ID, KEY

MOST = 50


class Found(Exception):
    """One thing alone is meant: go there."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.address = address


async def show(view: View, store: VisibleStore) -> Page:
    q = view.asked("q")
    name, _, at = q.partition(" ")
    if re.fullmatch(KEY, q) and await store.find_fires(FireQuery(key=q)):
        raise Found(view.fire(q))
    if re.fullmatch(ID, name) and await store.jobs([name]):
        raise Found(view.job(name, at=at.strip()))
    records = await store.jobs(page=JobPage(MOST + 1, "", name)) if name else ()
    ids = [record.id for record in records]
    if len(ids) == 1:
        raise Found(view.job(ids[0], at=at.strip()))
    main = rendered("find.html", view, None, q=q, ids=ids[:MOST], more=len(ids) > MOST, asked_at=at.strip())
    return Page(f"Find {q}" if q else "Find", main, "")
