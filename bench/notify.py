"""What notifications cost: the same load in three ways, in turn, in one run of short rounds.

    python -m bench.notify --store sqlite --rate 1000 --seconds 5 --rounds 4

    taken out    the outbox is no part of the code
    no rules     nothing is configured
    rules        every job is watched, for six causes

Nothing fails meanwhile: what is measured is what watching costs. There is a verdict only if the rate held in every
round: a machine that is too busy for the load says nothing about notifications.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bench.places import STORES, a_place
from bench.rate import Rate, measure

WAYS: Mapping[str, Mapping[str, str]] = {
    "taken out": {"LOAD_NOTIFY": "taken out"},
    "no rules": {},
    "rules": {"LOAD_NOTIFY": "all"},
}
MOST_WITH_RULES = 1.2
"""Times the p99 without rules."""
Rounds = Mapping[str, Sequence[Rate]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=STORES, default="sqlite")
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    load_before = os.getloadavg()[0]
    found: dict[str, list[Rate]] = {way: [] for way in WAYS}
    for number in range(options.rounds):
        ways = list(WAYS)
        for way in ways[number % len(ways) :] + ways[: number % len(ways)]:  # none is always the first
            with a_place(options.store) as place:
                found[way].append(measure(place, options.rate, options.seconds, 3, WAYS[way]))
    told = {
        "load_average": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        **{way: _figures(rates) for way, rates in found.items()},
        "verdict": verdict(found),
    }
    print(json.dumps(told, indent=2))
    return 0


def _figures(rates: Sequence[Rate]) -> dict[str, Any]:
    return {
        "p50_ms": [round(each.p50_ms, 1) for each in rates],
        "p99_ms": [round(each.p99_ms, 1) for each in rates],
        "cpu_us_per_fire": [round(each.cpu_us_per_fire) for each in rates],
        "server_us_per_fire": [round(each.server_us_per_fire) for each in rates],
        "others_cores": [round(each.others_cores, 2) for each in rates],
        "started": [f"{each.started} of {each.due}" for each in rates],
        "holds": [each.holds for each in rates],
    }


def verdict(found: Rounds) -> dict[str, Any]:
    """Ratios of medians; nothing, where the rate did not hold."""
    every = [each for rates in found.values() for each in rates]
    not_held = sum(not each.holds for each in every)
    if not_held:
        return {
            "none": f"the rate did not hold in {not_held} of {len(every)} rounds; run it on a quiet machine"
        }
    p99 = _ratio(found, "rules", "no rules", "p99_ms")
    return {
        "rules_p99": p99,
        "rules_cpu": _ratio(found, "rules", "no rules", "cpu_us_per_fire"),
        "no_rules_p99": _ratio(found, "no rules", "taken out", "p99_ms"),
        "no_rules_cpu": _ratio(found, "no rules", "taken out", "cpu_us_per_fire"),
        "within": p99 <= MOST_WITH_RULES,
    }


def _ratio(found: Rounds, way: str, other: str, name: str) -> float:
    def median(rates: Sequence[Rate]) -> float:
        return float(statistics.median(getattr(each, name) for each in rates))

    return round(median(found[way]) / max(1e-9, median(found[other])), 3)


if __name__ == "__main__":
    raise SystemExit(main())
