"""The table: which rule was taken out, how many seeds it took to notice, and what noticed it."""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed

from fencepost.clock import SystemClock
from fencepost.testing.mutants import MUTANTS, SEEDS, seeds_to_notice


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="fencepost.testing.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="only these", metavar="NAME")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="within which each must be noticed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - MUTANTS.keys())
    if unknown:
        parser.error(f"no mutant is called {', '.join(unknown)}")
    return table(options.names or list(MUTANTS), options.seeds, options.jobs)


def table(names: list[str], seeds: int, jobs: int) -> int:
    clock = SystemClock()
    begun, survived = clock.steady(), 0
    wide = max(map(len, names))
    print(f"{'mutant':{wide}}  {'rule taken out':68}  {'seeds':>8}  noticed by")
    with ProcessPoolExecutor(jobs) as pool:
        waiting = {pool.submit(seeds_to_notice, name, seeds): name for name in names}
        for done in as_completed(waiting):
            name, noticed = waiting[done], done.result()
            survived += noticed is None
            count, violation = noticed or ("SURVIVED", "")
            print(f"{name:{wide}}  {MUTANTS[name].rule:68}  {count:>8}  {violation[:90]}", flush=True)
    print(f"{len(names)} mutants in {clock.steady() - begun:.0f} s, {survived} survived {seeds} seeds")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
