"""The figures as a table: on the terminal, and as Markdown for docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

COLUMNS = (
    "",
    "version",
    "late p50 / p99 at 20/s",
    "CPU per fire, + server",
    "late p50 / p99 at 100/s",
    "CPU per fire, + server",
    "highest rate",
    "kill -9: doubled",
    "not run",
    "gap",
    "latest",
)
Result = Mapping[str, Any]


def rich_table(results: Result) -> Table:
    made = Table(title="Peers side by side", title_justify="left")
    for column in COLUMNS:
        made.add_column(column, justify="left" if column in ("", "version") else "right")
    for peer in results["peers"]:
        made.add_row(*cells(peer), end_section=False)
    return made


def markdown(results: Result) -> str:
    header = ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    rows = [[f"**{row[0]}**" if peer["ours"] else row[0], *row[1:]] for peer, row in _rows(results)]
    return "\n".join([*header, *("| " + " | ".join(row) + " |" for row in rows)])


def _rows(results: Result) -> list[tuple[Result, list[str]]]:
    return [(peer, cells(peer)) for peer in results["peers"]]


def cells(peer: Result) -> list[str]:
    return [
        peer["label"] + ("" if peer["coordinated"] else " (not coordinated)"),
        peer["version"],
        *rate_cells(peer["at_20"]),
        *rate_cells(peer["at_100"]),
        highest(peer),
        *killed_cells(peer["killed"]),
    ]


def rate_cells(found: Result | None) -> list[str]:
    if not found:
        return ["", ""]
    late = "–" if found["p50_ms"] is None else f"{ms(found['p50_ms'])} / {ms(found['p99_ms'])}"
    if found["lost"]:
        late += f", {found['lost']:.0f} of {found['due']:.0f} not started"
    server = f" + {found['server_us'] / 1000:.2f}" if found["server_us"] else ""
    return [late, f"{found['cpu_us'] / 1000:.2f}{server} ms"]


def ms(value: float) -> str:
    return f"{value:.1f} ms" if value < 100 else f"{value / 1000:.2f} s"


def highest(peer: Result) -> str:
    if peer["highest"] is None:
        return ""
    return f"{peer['highest']:,}/s" if peer["highest"] else "below 20/s"


def killed_cells(found: Result | None) -> list[str]:
    if not found:
        return ["", "", "", ""]
    worst = "–" if found["worst_s"] is None else f"{found['worst_s']:.1f} s"
    return [
        f"{found['doubled']:.0f} of {found['due']:.0f}",
        f"{found['lost']:.0f}",
        f"{found['gap_s']:.1f} s",
        worst,
    ]


def better_peers(results: Result) -> list[str]:
    """Where a peer has the better figure than a row of Fencepost on the same store: a sentence for each."""
    ours = [peer for peer in results["peers"] if peer["ours"]]
    theirs = [peer for peer in results["peers"] if not peer["ours"]]
    return [
        f"{peer['label']}{each} ({own['label']})"
        for peer in theirs
        for own in ours
        if own["store"] == peer["store"]
        for each in better(peer, own)
    ]


def better(peer: Result, own: Result) -> list[str]:
    found = []
    for rate in ("at_20", "at_100"):
        theirs, mine = peer[rate], own[rate]
        if not theirs or not mine or theirs["lost"]:
            continue
        words = f", at {rate.removeprefix('at_')} fires/s"
        cpu, own_cpu = total_cpu(theirs), total_cpu(mine)
        if cpu < own_cpu:
            found.append(f"{words}: {cpu:.2f} ms of CPU per fire against {own_cpu:.2f}")
        if theirs["p99_ms"] is not None and theirs["p99_ms"] < mine["p99_ms"]:
            found.append(f"{words}: p99 {ms(theirs['p99_ms'])} against {ms(mine['p99_ms'])}")
    if peer["killed"] and own["killed"] and peer["coordinated"]:
        missing, own_missing = peer["killed"]["lost"], own["killed"]["lost"]
        if missing < own_missing:
            found.append(f": {missing:.0f} fires not run after kill -9 against {own_missing:.0f}")
    if peer["highest"] and own["highest"] and peer["highest"] > own["highest"]:
        found.append(f": holds {peer['highest']:,}/s against {own['highest']:,}/s")
    return found


def total_cpu(found: Result) -> float:
    """Milliseconds per fire, of the replicas and the server."""
    return float(found["cpu_us"] + found["server_us"]) / 1000


def others_cores(results: Result) -> float:
    """The most that others used of the machine during a measurement at 20 or 100 fires a second."""
    rates = [peer[rate] for peer in results["peers"] for rate in ("at_20", "at_100") if peer[rate]]
    return max((rate["others_cores"] for rate in rates), default=0.0)


def disturbed(results: Result) -> bool:
    return others_cores(results) > 0.3


CAPTIONS = {
    "peers-lateness.svg": "How late fires start at the 99th percentile, 100 fires a second, for each scheduler",
    "peers-cpu.svg": "CPU per fire at 100 fires a second, replicas and server, for each scheduler",
    "peers-rate.svg": "The highest rate that each scheduler held",
}


def document(results: Result, machine: Mapping[str, str], pictures: Sequence[str]) -> str:
    """What stands between the markers in docs/benchmarks.md."""
    shown = {name: value for name, value in machine.items() if name in ("cores", "Python", "SQLite")}
    where = ", ".join(f"{name} {value}" for name, value in shown.items())
    noise = others_cores(results)
    beside = (
        f"**Measured beside other work**, which took up to {noise:.1f} cores. " if disturbed(results) else ""
    )
    better = better_peers(results)
    lines = [
        f"{results['date']}; {where}; PostgreSQL 18, Valkey 9.1. {beside}Median of {results['plan']['rounds']} "
        f"{'round' if results['plan']['rounds'] == 1 else 'rounds'} of {results['plan']['seconds']:.0f} s.",
        "",
        markdown(results),
        "",
        "Where a peer has the better figure in this run:"
        if better
        else "No peer had a better figure in this run.",
        *(["", *(f"- {each}." for each in better)] if better else []),
        *(f"\n![{CAPTIONS[name]}](pictures/{name})" for name in pictures),
    ]
    return "\n".join(lines)


BEGIN, END = "<!-- peers: written by bench -->", "<!-- /peers -->"


def update(page: Path, text: str) -> None:
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page} has no {BEGIN} … {END}")
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
