"""`make bench ARGS="--only peers"`: Fencepost and its peers, the same work, on the same machine, taking turns."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bench.peers import picture, report
from bench.peers.measure import Plan, chosen, measure
from rich.console import Console

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"
DOCS = ROOT / "docs" / "pictures"
DRAFTS = ROOT / "build" / "pictures"


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("peers (--only peers)")
    group.add_argument("--peer", action="append", help="only this one; may be repeated")
    group.add_argument(
        "--update-docs",
        action="store_true",
        help="write table and pictures into docs/ instead of build/pictures",
    )


def main(options: argparse.Namespace, console: Console, machine: Mapping[str, str]) -> int:
    plan = Plan.quick() if options.quick else Plan()
    if not options.search:
        plan = replace(plan, search=False)
    if options.rounds:
        plan = replace(plan, rounds=options.rounds)
    results = measure(
        chosen(options.peer, options.quick), plan, lambda text: console.print(text, soft_wrap=True)
    )
    drawn = picture.draw(results, DOCS if options.update_docs else DRAFTS)
    for path in drawn:
        console.print(f"drawn: {path.relative_to(ROOT)}")
    if options.update_docs:
        report.update(PAGE, report.document(results, machine, [path.name for path in drawn]))
    if options.json:
        print(json.dumps({"machine": machine, **results}, indent=2))
        return 0
    shown = Console(highlight=False, width=max(200, Console().width))
    shown.print(report.rich_table(results))
    for peer in results["peers"]:
        for error in peer["errors"]:
            shown.print(f"{peer['name']}: not measured in full: {error}")
    for line in report.better_peers(results):
        shown.print(f"better than Fencepost: {line}")
    shown.print(
        f"took {results['minutes']} minutes; others used up to {report.others_cores(results):.1f} cores"
    )
    return 0
