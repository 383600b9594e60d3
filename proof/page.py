"""The figures of docs/proof.md, made from summary.json. They stand between two marks; all else is written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

BEGIN = "<!-- figures: written by `make proof`, do not edit -->\n"
END = "<!-- end of figures -->\n"
NAMES = {"sqlite": "SQLite", "file": "file", "valkey": "Valkey 9.1", "postgres": "PostgreSQL 18"}
FOLDER = "proof"


def write(path: Path, summary: Mapping[str, Any]) -> None:
    before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n{figures(summary)}\n{END}{after}", encoding="utf-8")


def violations(summary: Mapping[str, Any]) -> list[str]:
    found = [f"seed {seed}: {each[0]}" for seed, each in summary["simulator"]["violations"].items()]
    return found + [
        f"{stage['store']}, {stage['stage']}: {each}"
        for stage in summary["soak"]
        for each in stage["violations"]
    ]


def figures(summary: Mapping[str, Any]) -> str:
    return "\n".join(
        [
            f"Run on {summary['date']}: Fencepost {summary['fencepost']}, Python {summary['python']}, SQLite "
            f"{summary['sqlite']}, {summary['system']}.",
            "",
            *_simulator(summary["simulator"]),
            "",
            *_soak(summary),
            "",
            *_verdict(summary),
        ]
    )


def _simulator(simulator: Mapping[str, Any]) -> list[str]:
    faults = simulator["faults"]
    last = simulator["first"] + simulator["seeds"] - 1
    each = ", ".join(f"{count:,} {kind}" for kind, count in faults.items())
    return [
        "| simulator | |",
        "|---|---|",
        f"| seeds | {simulator['seeds']:,} ({simulator['first']} to {last}) |",
        f"| virtual hours | {simulator['virtual_hours']:,} |",
        f"| rows of the ledger, bodies started | {simulator['rows']:,}, {simulator['runs']:,} |",
        f"| faults drawn | {sum(faults.values()):,}: {each} |",
        f"| seeds with a violation | {len(simulator['violations'])} |",
        f"| histories | [every seed with its digest]({FOLDER}/seeds.jsonl.gz), "
        f"[the first one in full]({FOLDER}/seed-{simulator['first']}.jsonl.gz) |",
    ]


def _soak(summary: Mapping[str, Any]) -> list[str]:
    rows = [
        f"Three real processes, {summary['rate']} fires a second, {summary['seconds']:g} s for each stage and store; "
        "each store's name leads to the history:",
        "",
        "| stage | store | due | succeeded, lost, other | doubled | unaccounted | late p50/p99/max ms |",
        "|---|---|---|---|---|---|---|",
    ]
    for stage in summary["soak"]:
        states = stage["states"]
        succeeded, lost = states.get("succeeded", 0), states.get("lost", 0)
        other = sum(states.values()) - succeeded - lost
        late = " / ".join(f"{each:,.0f}" for each in stage["late_ms"])
        rows.append(
            f"| {stage['stage']} | {_link(stage)} | {stage['due']:,} | {succeeded:,}, {lost:,}, {other:,} "
            f"| {stage['doubled']} | {stage['unaccounted']} | {late} |"
        )
    return rows


def _link(stage: Mapping[str, Any]) -> str:
    name = NAMES.get(stage["store"], stage["store"])
    return f"[{name}]({FOLDER}/{stage['history']})" if stage["history"] else name


def _verdict(summary: Mapping[str, Any]) -> list[str]:
    found = violations(summary)
    if not found:
        return ["**No promise was broken in any of these histories.**"]
    return [f"**Promises were broken in {len(found)} places:**", "", *(f"- `{each}`" for each in found)]
