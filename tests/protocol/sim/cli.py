"""The simulator's command line: many seeds on all cores, or one seed with its trace."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from fencepost.clock import SystemClock
from tests.protocol.sim.focus import SHARES
from tests.protocol.sim.simulation import Result, simulate


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.protocol.sim", description="Simulate faults, by seed.")
    parser.add_argument("--seeds", type=int, default=500, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="just this one")
    parser.add_argument("--trace", action="store_true", help="print what happened (with --seed)")
    parser.add_argument(
        "--with", dest="focus", default="", metavar="KIND,…", help=f"in every seed: {', '.join(SHARES)}"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    options = parser.parse_args(arguments)
    focus = [kind for kind in options.focus.split(",") if kind]
    if options.seed is not None:
        return one(options.seed, options.trace, focus)
    return many(range(options.first, options.first + options.seeds), options.jobs, focus)


def one(seed: int, trace: bool, focus: Sequence[str]) -> int:
    result = simulate(seed, trace, focus)
    for line in result.trace:
        print(line)
    print(f"seed {seed}: {result.fires} ledger rows, digest {result.digest[:16]}, {_told(result.faults)}")
    for violation in result.violations:
        print(f"  VIOLATION {violation}")
    return 1 if result.violations else 0


def many(seeds: range, jobs: int, focus: Sequence[str]) -> int:
    clock = SystemClock()
    begun = clock.steady()
    done, failed = 0, list[Result]()
    seconds, runs, rows = 0.0, 0, 0
    faults: Counter[str] = Counter()
    with ProcessPoolExecutor(jobs) as pool:
        for result in pool.map(partial(simulate, focus=focus), seeds, chunksize=5):
            done, seconds = done + 1, seconds + result.seconds
            runs, rows = runs + result.runs, rows + result.fires
            faults.update(result.faults)
            if result.violations:
                failed.append(result)
                _clear()
                print(f"seed {result.seed}: {result.violations[0]}", flush=True)
            if sys.stderr.isatty():
                print(f"\r{done}/{len(seeds)} seeds", end="", file=sys.stderr, flush=True)
    _clear()
    took = clock.steady() - begun
    print(f"{done} seeds in {took:.0f} s ({done / took:.1f} seeds/s)")
    print(f"{seconds / 3600:.0f} virtual hours, {rows} ledger rows, {runs} runs")
    print(_told(faults))
    print(f"{len(failed)} seeds with violations")
    if failed:
        print(f"replay: make sim SEED={failed[0].seed}", f"WITH={','.join(focus)}" if focus else "")
    return 1 if failed else 0


def _told(faults: Mapping[str, int]) -> str:
    each = ", ".join(f"{count} × {kind}" for kind, count in sorted(faults.items()))
    return f"{sum(faults.values())} faults drawn: {each}" if faults else "no faults"


def _clear() -> None:
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
