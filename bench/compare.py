"""`make bench ARGS="--compare REV"`: this tree and an earlier commit take turns; exits 1 if a figure has become worse.

Each is measured by its own `bench.run`, in the same virtual environment: REV's code comes first on PYTHONPATH, from a
worktree in a temporary folder. A round is one measurement of each, in changing order. What decides is the median of
the rounds' ratios, and every round has to agree on the direction: see `verdict`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
METHOD = ("bench/rate.py", "bench/places.py", "tests/cluster/apps/load.py", "tests/cluster/harness.py")
"""What decides how a rate is measured: where this differs, so may the figures."""
SLACK = {"late p50 ms": 1.0, "late p99 ms": 5.0}
"""A difference below this is not a change, whatever the ratio."""
STORES = ("sqlite", "valkey", "postgres")

Figures = Mapping[str, float]
"""By name; smaller is better."""


@dataclass(frozen=True)
class Verdict:
    name: str
    before: float
    """Medians over the rounds."""
    after: float
    ratios: tuple[float, ...]
    """Now to then, round by round."""
    worse: bool

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    def to_json(self) -> dict[str, Any]:
        return {
            "figure": self.name,
            "before": self.before,
            "after": self.after,
            "ratio": self.ratio,
            "ratios": self.ratios,
            "worse": self.worse,
        }


def verdict(
    name: str, rounds: Sequence[tuple[float, float]], worse_than: float, slack: float = 0.0
) -> Verdict | None:
    """`rounds`: (then, now). Worse, if the median ratio is above the bound, no round was better than before, and the
    medians differ by more than `slack`: one disturbed round does not make it worse. None: nothing to compare."""
    usable = [(then, now) for then, now in rounds if then > 0 and math.isfinite(then) and not math.isnan(now)]
    if not usable:
        return None
    ratios = tuple(now / then for then, now in usable)
    before, after = (statistics.median(side) for side in zip(*usable, strict=True))
    worse = statistics.median(ratios) > worse_than and min(ratios) > 1 and after - before > slack
    return Verdict(name, before, after, ratios, worse)


def verdicts(rounds: Sequence[tuple[Figures, Figures]], worse_than: float) -> list[Verdict]:
    """Of every figure that both sides have in some round."""
    names = list(dict.fromkeys(name for then, now in rounds for name in then if name in now))
    found = []
    for name in names:
        pairs = [(then[name], now[name]) for then, now in rounds if name in then and name in now]
        slack = next((slack for kind, slack in SLACK.items() if name.endswith(kind)), 0.0)
        judged = verdict(name, pairs, worse_than, slack)
        if judged:
            found.append(judged)
    return found


def figures(results: Mapping[str, Any]) -> dict[str, float]:
    """Of what `bench.run --only rates --json` printed. A rate that did not hold is infinitely late; where fires did not
    start, what each cost says nothing."""
    found: dict[str, float] = {}
    for store, measured in results["stores"].items():
        for rate in measured["rates"]:
            row = f"{store} {rate['rate']}/s "
            late = 1.0 if rate["holds"] else math.inf
            found[row + "late p50 ms"] = rate["p50_ms"] * late
            found[row + "late p99 ms"] = rate["p99_ms"] * late
            complete = rate["started"] == rate["due"]
            if complete:
                found[row + "CPU µs"] = rate["cpu_us_per_fire"]
            if complete and rate["server_us_per_fire"]:
                found[row + "server CPU µs"] = rate["server_us_per_fire"]
    return found


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("regressions")
    group.add_argument("--compare", metavar="REV", help="measure beside this commit; exit 1 if worse")
    group.add_argument("--worse-than", type=float, default=1.2, help="the ratio from which a figure is worse")
    group.add_argument("--rounds", type=int, help="how often each is measured; also for --only peers")


def main(options: argparse.Namespace, console: Console) -> int:
    found = compare(
        options.compare,
        stores=options.store or STORES,
        rates=options.rates or ([100] if options.quick else [100, 1000]),
        seconds=min(options.seconds, 8.0),
        rounds=options.rounds or (3 if options.quick else 5),
        worse_than=options.worse_than,
        progress=lambda text: console.print(text, soft_wrap=True),
    )
    if options.json:
        print(json.dumps([each.to_json() for each in found], indent=2))
    else:
        Console(highlight=False).print(table(options.compare, found, options.worse_than))
    if not found:
        console.print("nothing could be compared: in no round did a rate hold on both sides")
        return 2
    return 1 if any(each.worse for each in found) else 0


# --- measuring ---------------------------------------------------------------------------------------------


def compare(
    revision: str,
    *,
    stores: Sequence[str],
    rates: Sequence[int],
    seconds: float,
    rounds: int,
    worse_than: float,
    progress: Callable[[str], object],
) -> list[Verdict]:
    arguments = ["--only", "rates", "--json", "--search", "0", "--seconds", str(seconds)]
    arguments += ["--rates", ",".join(map(str, rates))]
    pairs: list[tuple[Figures, Figures]] = []
    with worktree(revision) as earlier:
        changed = [path for path in METHOD if differs(earlier / path, ROOT / path)]
        if changed:
            progress(f"the way of measuring has changed as well: {', '.join(changed)}")
        for number in range(rounds):
            for store in stores:
                order = (earlier, ROOT) if number % 2 == 0 else (ROOT, earlier)
                measured = {tree: of_tree(tree, [*arguments, "--store", store]) for tree in order}
                pairs.append((measured[earlier], measured[ROOT]))
                progress(f"round {number + 1} of {rounds}, {store}: {told(pairs[-1])}")
    return verdicts(pairs, worse_than)


@contextmanager
def worktree(revision: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fencepost-compare-") as name:
        folder = Path(name) / "tree"
        git("worktree", "add", "--quiet", "--detach", str(folder), revision)
        try:
            yield folder
        finally:
            git("worktree", "remove", "--force", str(folder))


def git(*arguments: str) -> None:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"git {' '.join(arguments)}: {done.stderr.strip()}")


def differs(one: Path, other: Path) -> bool:
    return not one.exists() or one.read_bytes() != other.read_bytes()


def of_tree(tree: Path, arguments: Sequence[str]) -> dict[str, float]:
    """The working folder comes first on the path for `bench` and `tests`, PYTHONPATH before the installed package."""
    env = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}"}
    command = [sys.executable, "-m", "bench.run", *arguments]
    done = subprocess.run(command, cwd=tree, env=env, stdout=subprocess.PIPE, check=True)
    return figures(json.loads(done.stdout))


# --- showing it --------------------------------------------------------------------------------------------


def told(pair: tuple[Figures, Figures]) -> str:
    then, now = pair
    return ", ".join(f"{name} {then[name]:.1f} → {now[name]:.1f}" for name in then if name in now)


def table(revision: str, found: Sequence[Verdict], worse_than: float) -> Table:
    made = Table(title=f"Beside {revision}; worse is above {worse_than:g} ×", title_justify="left")
    for column in ("figure", "then", "now", "ratio", "lowest", "highest", ""):
        made.add_column(column, justify="left" if column in ("figure", "") else "right")
    for each in found:
        cells = (each.before, each.after, each.ratio, min(each.ratios), max(each.ratios))
        forms = (".1f", ".1f", ".2f", ".2f", ".2f")
        numbers = [format(value, form) for value, form in zip(cells, forms, strict=True)]
        made.add_row(each.name, *numbers, "worse" if each.worse else "")
    return made
