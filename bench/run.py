"""`make bench`: what the stores do on this machine, beside what the machine itself can do right now.

See docs/benchmarks.md for how each figure is taken. Compare ratios: the absolute figures are this machine's.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import compare, dashboard, growth, guard, later, many, pools, readers, takeover
from bench.growth import Growth
from bench.peers import run as peers
from bench.places import SERVERS, STORES, a_place, missing
from bench.rate import Rate, measure
from bench.raw import LIMIT_OF
from bench.readers import Readers
from bench.takeover import Takeover
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
STORES_OF = {
    "readers": readers.STORES,
    "dashboard": readers.STORES,
    "later": later.STORES,
    "many": many.STORES,
}
"""What is measured on some stores only."""


def main() -> int:
    options = parsed()
    console = Console(stderr=True, highlight=False, quiet=options.json)
    machine = about_this_machine()
    console.print(", ".join(f"{name} {value}" for name, value in machine.items()))
    if options.compare:
        return compare.main(options, console)
    if options.only == "peers":
        return peers.main(options, console, machine)
    results: dict[str, Any] = {"machine": machine, "stores": {}}
    if options.only in (None, "guard"):
        results["plain APScheduler"] = guard.measure(None, options.guard)
    for store in options.store or STORES_OF.get(options.only, STORES):
        reason = missing(store)
        if reason:
            console.print(f"{store}: skipped, {reason}")
            continue
        results["stores"][store] = of_store(store, options, console)
    if options.json:
        print(json.dumps(results, indent=2, default=as_json))
    else:
        show(results)
    return 0


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter, and less exact")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--store", action="append", choices=STORES)
    parser.add_argument("--rates", type=lambda text: [int(rate) for rate in text.split(",")])
    parser.add_argument("--seconds", type=float, help="how long each rate is measured")
    parser.add_argument("--jobs", type=int, help="how many jobs to register")
    parser.add_argument("--search", type=float, help="seconds to look for the highest rate; 0: do not")
    parser.add_argument(
        "--only",
        choices=(
            "rates",
            "register",
            "idle",
            "takeover",
            "guard",
            "growth",
            "later",
            "pools",
            "readers",
            "dashboard",
            "many",
            "peers",
        ),
    )
    parser.add_argument("--replicas", type=int, default=60, help="for --only many")
    parser.add_argument("--processes", type=int, help="for --only many: share so many processes")
    peers.add_options(parser)
    compare.add_options(parser)
    parser.add_argument(
        "--fires", type=int, default=1_000_000, help="in the ledger, for --only readers and dashboard"
    )
    parser.add_argument(
        "--path", action="append", help="for --only dashboard, instead of all pages and the API"
    )
    parser.add_argument(
        "--stored",
        type=int,
        default=1_000_000,
        help="jobs stored by --only growth, fires added by --only later",
    )
    options = parser.parse_args()
    quick = options.quick
    options.seconds = options.seconds or (6.0 if quick else 30.0)
    options.jobs = options.jobs or (2_000 if quick else 10_000)
    options.search = (0.0 if quick else 150.0) if options.search is None else options.search
    options.idle = 10.0 if quick else 20.0
    options.guard = 5.0 if quick else 15.0
    return options


def of_store(store: str, options: argparse.Namespace, console: Console) -> dict[str, Any]:
    found: dict[str, Any] = {"raw": [raw_limit(store)], "rates": []}
    if options.only in (None, "register"):
        with a_place(store) as place:
            found["register"] = [
                child("register", place.url, options.jobs) for _ in range(1 if store == "memory" else 2)
            ]
        console.print(f"{store}: registered {options.jobs} jobs in {found['register'][0]['total_s']:.2f} s")
    if options.only in (None, "idle"):
        with a_place(store) as place:
            found["idle"] = together("idle", place.url, options.idle, 1 if store == "memory" else 3)
        console.print(f"{store}: idle for {options.idle:.0f} s")
    if options.only in (None, "takeover") and store != "memory":
        with a_place(store) as place:
            found["takeover"] = takeover.measure(place, 3 if options.quick else 10)
        for each in found["takeover"]:
            console.print(f"{store}: {taken_over(each)}")
    if options.only in (None, "guard"):
        with a_place(store) as place:
            found["guard"] = guard.measure(place, options.guard)
        console.print(f"{store}: measured the guard of APScheduler")
    if options.only == "growth":  # takes long: not by default
        with a_place(store) as place:
            found["growth"] = growth.measure(
                place, options.stored, options.idle, lambda text: console.print(f"{store}: {text}")
            )
    if options.only == "later" and store in later.STORES:  # takes long: not by default
        with a_place(store) as place:
            found["later"] = later.measure(
                place, options.stored, options.idle, lambda text: console.print(f"{store}: {text}")
            )
    if options.only == "pools" and store in pools.STORES:
        with a_place(store) as place:
            found["pools"] = pools.measure(
                place, options.idle, lambda text: console.print(f"{store}: {text}")
            )
        console.print(f"{store}: {pools.summary(found['pools'])}")
    if options.only == "many" and store in many.STORES:  # takes long: not by default
        found["many"] = many.measure(
            store,
            options.replicas,
            options.processes or options.replicas,
            options.idle,
            lambda text: console.print(f"{store}: {text}"),
        )
    if options.only == "readers" and store in readers.STORES:  # takes long: not by default
        with a_place(store) as place:
            found["readers"] = readers.measure(
                place,
                options.jobs,
                options.fires,
                options.seconds,
                lambda text: console.print(f"{store}: {text}"),
            )
        console.print(f"{store}: {readers.summary(found['readers'])}")
    if options.only == "dashboard" and store in dashboard.STORES:  # takes long: not by default
        with a_place(store) as place:
            found["dashboard"] = dashboard.measure(
                place,
                options.jobs,
                options.fires,
                options.seconds,
                options.path or (*dashboard.PAGES, *dashboard.API),
                lambda text: console.print(f"{store}: {text}"),
            )
        console.print(f"{store}: {dashboard.summary(found['dashboard'])}")
    if options.only in (None, "rates"):
        rates = options.rates or rates_of(store, options.quick)
        for rate in [*rates, *higher(max(rates), found["rates"], options)]:
            with a_place(store) as place:
                seconds = options.seconds if rate in rates else min(10.0, options.seconds)
                found["rates"].append(measure(place, rate, seconds, 1 if store == "memory" else 3))
            found["raw"].append(raw_limit(store))
            console.print(f"{store}: {told(found['rates'][-1])}")
    return found


def rates_of(store: str, quick: bool) -> list[int]:
    return [100, 1000] if quick else [100, 1000, 5000 if store in SERVERS else 2000]


def higher(highest: int, measured: list[Rate], options: argparse.Namespace) -> Iterator[int]:
    """Ever higher rates, as long as they hold and there is time."""
    deadline = time.monotonic() + options.search
    rate = highest
    while measured and measured[-1].holds and time.monotonic() < deadline:
        rate = round(rate * 1.5 / 100) * 100
        yield rate


# --- what a measurement needs -----------------------------------------------------------------------------


def raw_limit(store: str) -> float:
    with a_place(store) as place:
        return LIMIT_OF[store](place, 0.5)


def child(what: str, url: str, number: float) -> dict[str, Any]:
    return together(what, url, number, 1)[0]


def together(what: str, url: str, number: float, processes: int) -> list[dict[str, Any]]:
    """So many at once, each in a process of its own."""
    command = [sys.executable, "-m", "bench.replica", what, url, str(number)]
    running = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) for _ in range(processes)]
    try:
        outputs = [process.communicate(timeout=300)[0] for process in running]
    finally:
        for process in running:
            process.kill()
    return [json.loads(output) for output in outputs]


def about_this_machine() -> dict[str, str]:
    return {
        "cores": str(os.cpu_count()),
        "load": f"{os.getloadavg()[0]:.1f}",
        "Python": platform.python_version(),
        "SQLite": sqlite3.sqlite_version,
        "kernel": platform.release(),
    }


def as_json(value: Rate | Takeover | Growth | Readers) -> dict[str, Any]:
    return value.to_json() if isinstance(value, Rate) else asdict(value)


# --- showing it --------------------------------------------------------------------------------------------


def told(rate: Rate) -> str:
    outcome = "holds" if rate.holds else f"does not hold, {rate.started} of {rate.due} started"
    return (
        f"{rate.rate} fires/s for {rate.seconds:.0f} s: {rate.p50_ms:.1f} / {rate.p99_ms:.1f} ms late, "
        f"{rate.cpu_us_per_fire:.0f} + {rate.server_us_per_fire:.0f} µs CPU per fire, "
        f"{rate.others_cores:.1f} cores taken by others, the pulse {rate.pulse_p99_ms:.1f} ms late at p99, "
        f"{rate.pulse_worst_ms:.0f} at worst, {outcome} {rate.note}"
    )


def taken_over(found: Takeover) -> str:
    return (
        f"after {found.how}, TTL {found.ttl:.0f} s, the next leader after {found.median:.3f} s "
        f"(median of {len(found.seconds)}; longest {max(found.seconds):.3f} s)"
    )


def show(results: dict[str, Any]) -> None:
    console = Console(highlight=False, width=max(140, Console().width))
    rates = table("Fires per second", "store", "replicas", "fires/s", "late p50 ms", "p99 ms", "worst ms")
    add_columns(
        rates,
        "doubled",
        "not started",
        "CPU µs/fire",
        "server's",
        "cores",
        "others' cores",
        "pulse p99 ms",
        "worst ms",
        "fires per raw step",
        "",
    )
    others = table(
        "Registering, and idling with 100 hourly jobs", "store", "jobs", "registered", "again", "µs/job"
    )
    add_columns(
        others, "idle CPU %: leader", "worker", "operations/min: leader", "worker", "looks/min: leader"
    )
    for store, found in results["stores"].items():
        limit = statistics.median(found["raw"])
        for rate in found["rates"]:
            rates.add_row(store, *rate_cells(rate, limit))
        others.add_row(store, *register_cells(found), *idle_cells(found))
    if any(found["rates"] for found in results["stores"].values()):
        console.print(rates)
    if any("register" in found or "idle" in found for found in results["stores"].values()):
        console.print(others)
    if "plain APScheduler" in results:
        guarded = {store: found["guard"] for store, found in results["stores"].items()}
        console.print(guard.table(results["plain APScheduler"], guarded))
    for store, found in results["stores"].items():
        for each in found.get("takeover", ()):
            console.print(f"{store}: {taken_over(each)}")
        for each in found.get("growth", ()):
            console.print(
                f"{store}: ten fires a second beside {each.jobs} jobs: {each.p50_ms:.1f} / {each.p99_ms:.1f} ms late"
            )
        for each in found.get("later", ()):
            console.print(
                f"{store}: ten fires a second beside {each.jobs} asked for later: "
                f"{each.p50_ms:.1f} / {each.p99_ms:.1f} ms late"
            )
        if "many" in found:
            console.print(f"{store}: {many.summary(found['many'])}")
        if "dashboard" in found:
            for page in found["dashboard"].pages:
                console.print(f"{store}: {dashboard.page(page)}")
            console.print(f"{store}: {dashboard.summary(found['dashboard'])}")
        if "readers" in found:
            console.print(f"{store}: {readers.summary(found['readers'])}")
        if not found["rates"]:
            continue
        held = [rate.rate for rate in found["rates"] if rate.holds]
        low, middle, high = min(found["raw"]), statistics.median(found["raw"]), max(found["raw"])
        console.print(
            f"{store}: highest rate that held {max(held, default=0)}/s. Raw step: {LIMIT_OF[store].__name__}, "
            f"{middle:.0f} per second (between {low:.0f} and {high:.0f} during this run)"
        )


def table(title: str, *columns: str) -> Table:
    made = Table(title=title, title_justify="left")
    add_columns(made, *columns)
    return made


def add_columns(made: Table, *columns: str) -> None:
    for column in columns:
        made.add_column(column, justify="left" if column == "store" else "right")


def rate_cells(rate: Rate, limit: float) -> list[str]:
    late = [f"{value:.1f}" for value in (rate.p50_ms, rate.p99_ms, rate.worst_ms)]
    return [
        str(rate.replicas),
        str(rate.rate),
        *late,
        str(rate.doubled),
        str(rate.due - rate.started),
        f"{rate.cpu_us_per_fire:.0f}",
        f"{rate.server_us_per_fire:.0f}" if rate.server_us_per_fire else "",
        f"{rate.cores:.2f}",
        f"{rate.others_cores:.2f}",
        f"{rate.pulse_p99_ms:.1f}",
        f"{rate.pulse_worst_ms:.0f}",
        f"{rate.started / rate.seconds / limit:.2f}",
        "holds" if rate.holds else "fails",
    ]


def register_cells(found: dict[str, Any]) -> list[str]:
    if "register" not in found:
        return ["", "", "", ""]
    first, *again = found["register"]
    return [
        str(first["jobs"]),
        f"{first['total_s']:.2f} s",
        f"{again[0]['total_s']:.2f} s" if again else "",
        f"{first['total_s'] / first['jobs'] * 1e6:.0f}",
    ]


def idle_cells(found: dict[str, Any]) -> list[str]:
    if "idle" not in found:
        return ["", "", "", "", ""]
    leader = next((each for each in found["idle"] if each["leader"]), None)
    workers = [each for each in found["idle"] if not each["leader"]]

    def cell(who: dict[str, Any] | None, what: str, form: str) -> str:
        return format(who[what], form) if who else ""

    worker = max(workers, key=lambda each: float(each["cpu_percent"]), default=None)
    return [
        cell(leader, "cpu_percent", ".2f"),
        cell(worker, "cpu_percent", ".2f"),
        cell(leader, "operations_per_min", ".0f"),
        cell(worker, "operations_per_min", ".0f"),
        cell(leader, "looks_per_min", ".0f"),
    ]


if __name__ == "__main__":
    sys.exit(main())
