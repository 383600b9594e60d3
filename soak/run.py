"""`make soak`: three real processes under load, calm, under faults and deploys; every fire is judged.

Exits 1 if anything was doubled, unaccounted for, lost without a reason, or more than a second late.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table
from soak import guard, servers, stages
from soak.cluster import Stage
from soak.places import EMBEDDED, SERVERS, STORES, TOPOLOGIES, missing, place

from tests.cluster.harness import Verdict

STAGES: dict[str, Stage] = {
    "calm": stages.calm,
    "faults": stages.faults,
    "clock steps": stages.clock_steps,
    "rolling restart": stages.rolling_restart,
    "lost replies": stages.lost_replies,
    "outage": servers.outage,
    "failover": servers.failover,
    "wrong clocks": servers.wrong_clocks,
    "server clock": servers.server_clock,
    "emptied": servers.emptied,
    "guard uvicorn": guard.under_uvicorn,
    "guard gunicorn": guard.under_gunicorn,
    "guard service": guard.as_service,
}
LATEST = {"clock steps": None, "outage": None, "failover": None, "rolling restart": 0.5}
"""Seconds by which a start may be late; elsewhere one."""


@dataclass
class Ended:
    store: str
    stage: str
    verdict: Verdict
    violations: list[str]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--store", choices=[*STORES, "all", "embedded", "servers", "topologies"], default="all"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="of each stage")
    parser.add_argument("--stage", choices=STAGES, help="this one alone")
    options = parser.parse_args()
    found: list[Ended] = []
    groups = {"all": STORES, "embedded": EMBEDDED, "servers": tuple(SERVERS), "topologies": tuple(TOPOLOGIES)}
    for store in groups.get(options.store, (options.store,)):
        with tempfile.TemporaryDirectory(prefix="fencepost-soak-") as folder:
            reason = missing(store, Path(folder))
        if reason:
            print(f"{store}: skipped, {reason}", flush=True)
            continue
        for name, run in STAGES.items():
            if options.stage not in (None, name):
                continue
            stage = carry_out(store, name, run, options.seconds)
            if stage is not None:
                found.append(stage)
    show(found)
    return 0 if found and not any(stage.violations for stage in found) else 1


def carry_out(
    store: str, name: str, run: Stage, seconds: float, rate: int | None = None, judge_lateness: bool = True
) -> Ended | None:
    """None: the stage has no meaning on this store."""
    latest = LATEST.get(name, 1.0) if judge_lateness else None
    begun = time.monotonic()
    violations: list[str] = []
    verdict: Verdict | None = None
    with tempfile.TemporaryDirectory(prefix="fencepost-soak-") as folder, place(store, Path(folder)) as where:
        try:
            for told in run(replace(where, rate=rate), seconds):
                if isinstance(told, Verdict):
                    verdict = told
                    violations += told.violations(latest=latest)
                elif told.startswith("skipped"):
                    print(f"{store}, {name}: {told}", flush=True)
                    return None
                else:
                    violations += [told.removeprefix("violation: ")] * told.startswith("violation: ")
                    print(f"{store}, {name}: {time.monotonic() - begun:5.1f} s  {told}", flush=True)
        except AssertionError as error:
            violations.append(str(error))
    return Ended(store, name, verdict or Verdict(), violations)


def show(found: list[Ended]) -> None:
    table = Table(title="Three processes", title_justify="left")
    for column in ("store", "stage", "due", "ran", "lost", "other", "doubled", "unaccounted"):
        table.add_column(column, justify="left" if column in ("store", "stage") else "right")
    table.add_column("late p50/p99/max ms", justify="right")
    table.add_column("longest gap after", justify="left")
    table.add_column("", justify="left")
    for stage in found:
        verdict = stage.verdict
        lost = len(verdict.lost_in_faults) + len(verdict.lost_unexplained)
        other = sum(verdict.states.values()) - verdict.ran - lost
        late = " / ".join(f"{verdict.late(share) * 1000:.0f}" for share in (0.5, 0.99, 1.0))
        longest = {kind: max(gap for each, gap in verdict.gaps if each == kind) for kind, _ in verdict.gaps}
        gaps = ", ".join(f"{kind} {seconds:.2f} s" for kind, seconds in longest.items())
        counts = (verdict.due, verdict.ran, lost, other, len(verdict.doubled), len(verdict.unaccounted))
        outcome = "VIOLATED" if stage.violations else "holds"
        table.add_row(stage.store, stage.stage, *map(str, counts), late, gaps, outcome)
    Console(width=max(140, Console().width)).print(table)
    for stage in found:
        for violation in stage.violations:
            print(f"{stage.store}, {stage.stage}: {violation}")


if __name__ == "__main__":
    sys.exit(main())
