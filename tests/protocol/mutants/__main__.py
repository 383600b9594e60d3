"""The table: which rule was taken out, how many seeds it took to notice, and what noticed it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from fencepost.clock import SystemClock
from tests.protocol.mutants import MUTANTS, SEEDS, Noticed, seeds_to_notice


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.protocol.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="only these", metavar="NAME")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="within which each must be noticed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--markdown", action="store_true", help="print the table as the documentation has it")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - MUTANTS.keys())
    if unknown:
        parser.error(f"no mutant is called {', '.join(unknown)}")
    names = options.names or list(MUTANTS)
    clock = SystemClock()
    begun = clock.steady()
    noticed: dict[str, Noticed] = {}
    show = (lambda name, each: None) if options.markdown else _plain(names)
    for name, each in _each(names, options.seeds, options.jobs):
        noticed[name] = each
        show(name, each)
    if options.markdown:
        _markdown({name: noticed[name] for name in names})
    survived = sum(each is None for each in noticed.values())
    took = clock.steady() - begun
    print(f"{len(names)} mutants in {took:.0f} s, {survived} survived {options.seeds} seeds", file=sys.stderr)
    return 1 if survived else 0


def _each(names: Sequence[str], seeds: int, jobs: int) -> Iterator[tuple[str, Noticed]]:
    """As they are done."""
    with ProcessPoolExecutor(jobs) as pool:
        waiting = {pool.submit(seeds_to_notice, name, seeds): name for name in names}
        for done in as_completed(waiting):
            yield waiting[done], done.result()


def _plain(names: Sequence[str]) -> Callable[[str, Noticed], None]:
    wide = max(map(len, names))
    print(f"{'mutant':{wide}}  {'rule taken out':76}  {'seeds':>8}  noticed by")

    def show(name: str, noticed: Noticed) -> None:
        seeds, violation = noticed or ("SURVIVED", "")
        print(f"{name:{wide}}  {MUTANTS[name].rule:76}  {seeds:>8}  {violation[:90]}", flush=True)

    return show


def _markdown(noticed: Mapping[str, Noticed]) -> None:
    print("| rule taken out | noticed after seeds | as |\n|---|---|---|")
    for name, each in noticed.items():
        seeds, violation = each or ("not", "")
        print(f"| {MUTANTS[name].rule} | {seeds} | {_short(violation)} |")


def _short(violation: str) -> str:
    """Every simulation begins on the same day: only the time tells something."""
    return violation.replace("2026-11-15T", "").replace(".000000Z", "").replace("|", " ")[:90]


if __name__ == "__main__":
    sys.exit(main())
