"""Judge a history again: `python proof/read.py FILE …`. Needs nothing but Python, and no code of Fencepost.

A history is a gzip file of JSON lines. The first line says what it is of. In one of real processes (`"kind": "soak"`)
the others are, by their `type`:

    due     {job, times}                 when the job was due, by a calendar that shares no code with the scheduler
    start   {key, token, replica, pid, wall}     written by the body itself, first thing
    end     the same                     written by the body itself, last thing
    fault   {kind, pid, begun, ended}    what was done to a process
    row     {key, job, due_at, state, reason, count, last_due_at, attempts}      the ledger at the end

In one of the simulator (`"kind": "simulation"`) they are `{at, who, what}`: seconds of virtual time, the replica (or
`world`, `admin`), and what it did, as `make sim SEED=…` prints it. `seeds.jsonl.gz` has one line per simulated seed.
"""

# ruff: noqa: T201
from __future__ import annotations

import gzip
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def lines_of(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def judge(path: Path) -> dict[str, Any]:
    """Of a history of real processes: how many fires were due, and which were doubled, unaccounted for or invented."""
    header, *events = lines_of(path)
    assert header["kind"] == "soak", f"{path} is of another kind"
    rows = [event for event in events if event["type"] == "row"]
    starts: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event["type"] == "start":
            starts[event["key"]].append(event)
    due = {(event["job"], time) for event in events if event["type"] == "due" for time in event["times"]}
    return {
        "due": len(due),
        "states": dict(Counter(row["state"] for row in rows for _ in range(row["count"]))),
        "doubled": sorted(row["key"] for row in rows if is_doubled(starts[row["key"]], row["attempts"])),
        **account(due, rows),
    }


def is_doubled(starts: list[dict[str, Any]], attempts: list[dict[str, Any]]) -> bool:
    """A fire may start again only with another token, and after the ledger says how the attempt before ended."""
    tokens = [start["token"] for start in sorted(starts, key=lambda start: start["wall"])]
    ended = {attempt["token"] for attempt in attempts}
    return len(set(tokens)) < len(tokens) or any(token not in ended for token in tokens[:-1])


def account(due: set[tuple[str, str]], rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Each due time must be in exactly one final row. A row may stand for several neighbours that never started."""
    by_job: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_job[row["job"]].append(row)
    unaccounted, covered = [], Counter[str]()
    for job, time in sorted(due):
        inside = [
            row for row in by_job[job] if row["due_at"] <= time <= (row["last_due_at"] or row["due_at"])
        ]
        covered.update(row["key"] for row in inside)
        if len(inside) != 1 or inside[0]["state"] in ("pending", "running", "waiting", "queued"):
            unaccounted.append(f"{job}@{time}")
    invented = [row["key"] for row in rows if covered[row["key"]] != row["count"]]
    return {"unaccounted": unaccounted, "invented": invented}


def main(paths: list[str]) -> int:
    bad = 0
    for path in map(Path, paths):
        header = next(lines_of(path))
        if header["kind"] != "soak":
            print(f"{path.name}: {json.dumps(header)}")
            continue
        found = judge(path)
        bad += bool(found["doubled"] or found["unaccounted"] or found["invented"])
        print(f"{path.name}: {json.dumps(found)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
