"""`make proof`: simulated and real histories under faults, written to a folder, and the figures of the report on them.

Exits 1 if a promise was broken in any of them. How late fires start depends on the machine, and is only reported.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sqlite3
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from soak.places import STORES
from soak.run import STAGES, Ended, carry_out

from fencepost import __version__
from fencepost.clock import SystemClock
from proof import histories, page
from tests.protocol.sim.simulation import Result, simulate

FOLDER = Path("docs/proof")
PAGE = Path("docs/proof.md")
STAGES_SHOWN = ("faults", "lost replies", "wrong clocks")
STORES_SHOWN = ("sqlite", "file", "valkey", "postgres")
TRACES = 5
"""Seeds whose whole trace is kept: the same seed gives the same trace anywhere, so of the others a digest is enough."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="of the simulator")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each stage with real processes")
    parser.add_argument("--rate", type=int, default=20, help="fires a second, due at real processes")
    parser.add_argument("--stores", nargs="*", choices=STORES, default=list(STORES_SHOWN))
    parser.add_argument("--stages", nargs="*", choices=STAGES, default=list(STAGES_SHOWN))
    parser.add_argument(
        "--folder", type=Path, default=FOLDER, help="for histories and summary.json; emptied first"
    )
    parser.add_argument("--page", type=Path, default=PAGE, help="the report whose figures are replaced")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes of the simulator")
    options = parser.parse_args(arguments)
    clock = SystemClock()
    shutil.rmtree(options.folder, ignore_errors=True)
    summary = {
        "date": f"{clock.wall():%Y-%m-%d}",
        "fencepost": __version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "seconds": options.seconds,
        "rate": options.rate,
        "simulator": simulated(range(options.first, options.first + options.seeds), options),
        "soak": [found for stage in options.stages for found in soaked(stage, options)],
    }
    (options.folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    page.write(options.page, summary)
    print(page.figures(summary))
    return 1 if page.violations(summary) else 0


def simulated(seeds: range, options: argparse.Namespace) -> dict[str, Any]:
    traced = {seed: seed < seeds.start + TRACES for seed in seeds}
    faults: Counter[str] = Counter()
    with ProcessPoolExecutor(options.jobs) as pool:
        results: list[Result] = list(pool.map(simulate, traced.keys(), traced.values(), chunksize=2))
    for result in results:
        faults.update(result.faults)
        if traced[result.seed] or result.violations:
            kept = result if result.trace else simulate(result.seed, True)
            histories.write(options.folder / f"seed-{result.seed}.jsonl.gz", histories.of_simulation(kept))
    histories.write(options.folder / "seeds.jsonl.gz", map(histories.of_seed, results))
    return {
        "first": seeds.start,
        "seeds": len(seeds),
        "virtual_hours": round(sum(result.seconds for result in results) / 3600, 1),
        "rows": sum(result.fires for result in results),
        "runs": sum(result.runs for result in results),
        "faults": dict(sorted(faults.items())),
        "violations": {result.seed: result.violations for result in results if result.violations},
    }


def soaked(stage: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    found = []
    for store in options.stores:
        ended = carry_out(store, stage, STAGES[stage], options.seconds, options.rate, judge_lateness=False)
        if ended is None:
            continue  # the stage has no meaning on this store, and said so
        summary = _summary(ended)
        if ended.verdict.history is None or not summary["due"]:
            summary["violations"] = [*summary["violations"], "nothing was due: this shows nothing"]
            found.append({**summary, "history": None})
            continue
        name = f"{store}-{stage.replace(' ', '-')}.jsonl.gz"
        header = {**summary, "fencepost": __version__}
        histories.write(options.folder / name, histories.of_processes(header, ended.verdict.history))
        found.append({**summary, "history": name})
    return found


def _summary(ended: Ended) -> dict[str, Any]:
    verdict = ended.verdict
    return {
        "store": ended.store,
        "stage": ended.stage,
        "due": verdict.due,
        "states": dict(sorted(verdict.states.items())),
        "doubled": len(verdict.doubled) + len(verdict.twice_with_one_token),
        "unaccounted": len(verdict.unaccounted) + len(verdict.invented),
        "lost_unexplained": len(verdict.lost_unexplained),
        "late_ms": [round(verdict.late(share) * 1000, 1) for share in (0.5, 0.99, 1.0)]
        if verdict.lateness
        else [],
        "faults": dict(Counter(fault.kind for fault in verdict.history.faults)) if verdict.history else {},
        "violations": ended.violations,
    }


if __name__ == "__main__":
    sys.exit(main())
