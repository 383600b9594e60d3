"""What a namespace holds, read without opening the store."""

from __future__ import annotations

import json

from fencepost.store.formats import Contents, Format, Present
from fencepost.store.sql.statements import Statements


def contents_of(sql: Statements, found: Format, most_counted: int) -> Contents:
    """`most_counted`: fires, beyond which their number is not known."""
    (jobs,) = sql.one("select count(*) from {jobs}")
    (fires,) = sql.one("select count(*) from (select 1 from {fires} limit ?) as counted", most_counted)
    rows = sql.all("select id, replica from {replicas} order by id")
    present = tuple(Present(id, json.loads(row).get("version", "")) for id, row in rows)
    return Contents(found, jobs, fires if fires < most_counted else None, present)
