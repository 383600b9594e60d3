"""What the pages show, page by page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stop_sync.database import Ask

ROWS = 50
LONGEST_SEARCH = 100
PRIORITIES = (1, 2, 3)
KINDS_OF_PROBLEMS = ("distance", "attributes", "unmatched", "duplicate")


@dataclass(frozen=True)
class Wanted:
    """What somebody asked for, bounded: anything that is not usable counts as not said."""

    search: str = ""
    page: int = 1
    priority: int | None = None
    kind: str | None = None

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Wanted:
        page, priority, kind = (query.get(name, "") for name in ("page", "priority", "kind"))
        return cls(
            query.get("q", "").strip().replace("\0", "")[:LONGEST_SEARCH],
            max(1, int(page)) if re.fullmatch("[0-9]{1,6}", page) else 1,
            int(priority) if priority in map(str, PRIORITIES) else None,
            kind if kind in KINDS_OF_PROBLEMS else None,
        )


@dataclass(frozen=True)
class Page:
    rows: list[dict[str, Any]]
    total: int
    number: int

    @property
    def last(self) -> int:
        return max(1, -(-self.total // ROWS))

    @property
    def first_row(self) -> int:
        return min(self.total, (self.number - 1) * ROWS + 1)

    @property
    def last_row(self) -> int:
        return min(self.total, self.number * ROWS)


def summary(ask: Ask) -> dict[str, Any]:
    def count(what: str) -> int:
        return int(ask(f"select count(*) from {what}", ())[0][0])

    return {
        "stops": count("stops"),
        "matched": count("(select distinct sloid from matches) as matched"),
        "problems": {priority: count(f"problems where priority = {priority}") for priority in PRIORITIES},
    }


def stops(ask: Ask, wanted: Wanted) -> Page:
    where, values = _searched(wanted.search, "stops.name", "stops.number", "stops.sloid", "stops.operator")
    return _page(
        ask,
        wanted,
        ("name", "designation", "number", "operator", "sloid", "nodes", "nearest_m", "problems"),
        """stops.name, stops.designation, stops.number, stops.operator, stops.sloid,
           (select count(*) from matches where matches.sloid = stops.sloid),
           (select min(distance_m) from matches where matches.sloid = stops.sloid),
           (select count(*) from problems where problems.sloid = stops.sloid)""",
        f"stops{where}",
        "stops.name, stops.designation, stops.sloid",
        values,
    )


def problems(ask: Ask, wanted: Wanted) -> Page:
    where, values = _searched(
        wanted.search, "stops.name", "osm_nodes.name", "problems.detail", "problems.sloid", "stops.number"
    )
    for column, value in (("priority", wanted.priority), ("kind", wanted.kind)):
        if value is not None:
            where += f" {'and' if where else 'where'} problems.{column} = ?"
            values.append(value)
    return _page(
        ask,
        wanted,
        ("priority", "kind", "name", "detail", "sloid", "node"),
        """problems.priority, problems.kind, coalesce(stops.name, nullif(osm_nodes.name, ''), ''),
           problems.detail, problems.sloid, problems.node_id""",
        f"""problems left join stops on stops.sloid = problems.sloid
            left join osm_nodes on osm_nodes.id = problems.node_id{where}""",
        "problems.priority, problems.id",
        values,
    )


def _page(
    ask: Ask,
    wanted: Wanted,
    columns: tuple[str, ...],
    chosen: str,
    source: str,
    order: str,
    values: list[object],
) -> Page:
    """A page behind the last one is the last one."""
    total = int(ask(f"select count(*) from {source}", values)[0][0])
    number = min(wanted.page, max(1, -(-total // ROWS)))
    found = ask(
        f"select {chosen} from {source} order by {order} limit {ROWS} offset {(number - 1) * ROWS}", values
    )
    return Page([dict(zip(columns, row, strict=True)) for row in found], total, number)


def _searched(text: str, *columns: str) -> tuple[str, list[object]]:
    """Text that any of the columns contains, whatever its capitals. What SQL would take for a pattern is not one."""
    if not text:
        return "", []
    for sign in "!%_":
        text = text.replace(sign, f"!{sign}")
    likes = " or ".join(f"lower({column}) like lower(?) escape '!'" for column in columns)
    return f" where ({likes})", [f"%{text}%"] * len(columns)
