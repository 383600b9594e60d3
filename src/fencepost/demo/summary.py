"""The account, told: due, what became of it, what must be zero, and where to look next."""

from __future__ import annotations

import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fencepost
from fencepost.cli.output import console, say
from fencepost.demo.account import Account

MOST_NAMED = 5


def shape(account: Account, store_url: str, kept: bool) -> dict[str, Any]:
    """As JSON."""
    return {
        "ok": account.is_right,
        "due": account.due,
        "ran": account.ran,
        "skipped": account.states["skipped"],
        "missed": account.states["missed"],
        "lost": account.states["lost"],
        "lost_runs": account.lost,
        "cancelled": account.states["cancelled"],
        "retried": account.retried,
        "rerun": account.rerun,
        "unaccounted": account.unaccounted,
        "doubled": account.doubled,
        "problems": account.problems,
        "takeover_seconds": [round(seconds, 3) for seconds in account.takeovers],
        "lateness_seconds": {"p50": account.late(0.5), "p99": account.late(0.99)},
        "replicas": {"started": account.replicas, "killed": account.killed, "stopped": account.stopped},
        "store": store_url if kept else None,
        "why": why_command(account, store_url),
    }


def tell(account: Account, store_url: str, kept: bool) -> None:
    say(f"\n{_verdict(account)}\n")
    for name, number, remark in _figures(account):
        say(_wrapped(f"  {name:<12} {number:>7}   ", remark))
    say("\nWhat to look at next")  # commands are there to be copied: only sentences are wrapped
    for name, line in _next(account, store_url, kept):
        margin = f"  {name:<9} "
        say(_wrapped(margin, line) if not name else margin + line)


def why_command(account: Account, store_url: str) -> str | None:
    fire = account.example
    if fire is None:
        return None
    return f"{_program()} why --store {shlex.quote(store_url)} {fire.job_id} {fire.due_at:%H:%M:%S}"


def _verdict(account: Account) -> str:
    if not account.is_right:
        return "Something is wrong, and must not happen: see below."
    killed = f" (kill -9: {_listed(account.killed)})" if account.killed else ""
    return f"Every fire that was due has exactly one outcome, and nothing ran twice{killed}."


def _figures(account: Account) -> Iterator[tuple[str, int | str, str]]:
    states = account.states
    yield "due", account.due, "by the calendar, worked out again from the recorded schedules"
    yield "ran", account.ran, _again(account)
    reasons = sorted(account.reasons.items())
    yield "skipped", states["skipped"], ", ".join(f"{count} {reason}" for reason, count in reasons)
    yield "missed", states["missed"], "nobody could start it in time" if states["missed"] else ""
    if states["cancelled"]:
        yield "cancelled", states["cancelled"], ""
    yield "lost", states["lost"], _named(account.lost)
    yield "unaccounted", len(account.unaccounted), _named(account.unaccounted) or "must be 0"
    by = "must be 0; judged by what the jobs wrote down, not by the store"
    yield "doubled", len(account.doubled), _named(account.doubled) or by
    for problem in account.problems[:MOST_NAMED]:
        yield "problem", "!", problem
    if account.takeovers:
        more = f"; the others {_seconds(account.takeovers[1:])}" if account.takeovers[1:] else ""
        yield "takeover", f"{account.takeovers[0]:.2f} s", f"from kill -9 to the next leader{more}"
    middle, far = account.late(0.5), account.late(0.99)
    if middle is not None and far is not None:
        yield (
            "lateness",
            f"{middle * 1000:.0f} ms",
            f"from due to started: the median; p99 {far * 1000:.0f} ms",
        )


def _seconds(values: list[float]) -> str:
    return ", ".join(f"{value:.2f} s" for value in values[:MOST_NAMED])


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} leaders"


def _again(account: Account) -> str:
    again = [
        *([f"{account.retried} after a retry"] if account.retried else []),
        *([f"{account.rerun} again after a crash"] if account.rerun else []),
    ]
    return ", ".join(again)


def _next(account: Account, store_url: str, kept: bool) -> Iterator[tuple[str, str]]:
    yield "the jobs", _near(Path(__file__).with_name("app.py"))
    if command := why_command(account, store_url):
        yield "ask why", command
        yield "", account.answer
        if not kept:
            yield "", "(The folder of this run is gone; --keep, or make demo KEEP=1, keeps it.)"
    readme = Path(fencepost.__file__).parents[2] / "README.md"
    yield "read on", f"{_near(readme) if readme.exists() else 'the README'}: ten lines of code"


def _wrapped(margin: str, text: str) -> str:
    if not text:
        return margin.rstrip()
    return textwrap.fill(
        text,
        console().width,
        initial_indent=margin,
        subsequent_indent=" " * len(margin),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _program() -> str:
    """`fencepost`, as it can be called from here."""
    beside = Path(sys.executable).with_name("fencepost")
    if shutil.which("fencepost"):
        return "fencepost"
    return _near(beside) if beside.exists() else f"{_near(Path(sys.executable))} -m fencepost"


def _near(path: Path) -> str:
    """From here, if it is below here."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _named(keys: list[str]) -> str:
    more = f" and {len(keys) - MOST_NAMED} more" if len(keys) > MOST_NAMED else ""
    return "; ".join(keys[:MOST_NAMED]) + more
