"""The report on histories under faults: its figures are those of the histories, and its reader notices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from proof import histories, page, read, run

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "proof"
REPORT = ROOT / "docs" / "proof.md"
DUE = [f"2026-11-15T12:00:0{second}.000000Z" for second in range(3)]


def test_no_figure_is_typed_by_hand() -> None:
    summary = json.loads((FOLDER / "summary.json").read_text())
    assert f"{page.BEGIN}\n{page.figures(summary)}\n{page.END}" in REPORT.read_text(encoding="utf-8")


def test_histories_say_what_the_report_says() -> None:
    summary = json.loads((FOLDER / "summary.json").read_text())
    for stage in summary["soak"]:
        found = read.judge(FOLDER / stage["history"])
        assert (found["due"], found["states"]) == (stage["due"], stage["states"])
        assert (len(found["doubled"]), len(found["unaccounted"])) == (stage["doubled"], stage["unaccounted"])
    seeds = list(read.lines_of(FOLDER / "seeds.jsonl.gz"))
    assert len(seeds) == summary["simulator"]["seeds"]
    assert sum(seed["runs"] for seed in seeds) == summary["simulator"]["runs"]


def history(*events: dict[str, Any]) -> list[dict[str, Any]]:
    """Three fires of a job, of which the second was run again after its process was killed."""
    rows = [
        {"type": "row", "key": f"j@{due}", "job": "j", "due_at": due, "state": "succeeded", "count": 1}
        | {"reason": None, "last_due_at": None, "attempts": [{"token": 2}] if number == 1 else []}
        for number, due in enumerate(DUE)
    ]
    starts = [start(DUE[0], 1), start(DUE[1], 2), start(DUE[1], 3), start(DUE[2], 4)]
    return [{"kind": "soak"}, {"type": "due", "job": "j", "times": DUE}, *starts, *rows, *events]


def start(due: str, token: int) -> dict[str, Any]:
    return {"type": "start", "key": f"j@{due}", "token": token, "wall": float(token)}


@pytest.mark.parametrize(
    ("change", "noticed"),
    [
        (lambda lines: lines, {}),
        (lambda lines: [*lines, start(DUE[0], 1)], {"doubled": [f"j@{DUE[0]}"]}),
        (lambda lines: [*lines, start(DUE[2], 9)], {"doubled": [f"j@{DUE[2]}"]}),
        (lambda lines: lines[:-1], {"unaccounted": [f"j@{DUE[2]}"]}),
        (lambda lines: [*lines, {**lines[-1], "key": "j@again"}], {"unaccounted": [f"j@{DUE[2]}"]}),
        (lambda lines: [*lines[:-1], {**lines[-1], "count": 5}], {"invented": [f"j@{DUE[2]}"]}),
        (lambda lines: [*lines[:-1], {**lines[-1], "state": "running"}], {"unaccounted": [f"j@{DUE[2]}"]}),
    ],
)
def test_the_reader_notices(change: Any, noticed: dict[str, list[str]], tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl.gz"
    histories.write(path, change(history()))
    found = read.judge(path)
    names = ("doubled", "unaccounted", "invented")
    assert {name: found[name] for name in names if found[name]} == noticed
    assert read.main([str(path)]) == bool(noticed)


@pytest.mark.slow
@pytest.mark.cluster
def test_one_command_makes_it(tmp_path: Path) -> None:
    report = tmp_path / "proof.md"
    report.write_text(f"before\n{page.BEGIN}old\n{page.END}after\n")
    options = ["--seeds", "3", "--seconds", "5", "--stores", "sqlite", "--stages", "rolling restart"]
    assert run.main([*options, "--folder", str(tmp_path / "proof"), "--page", str(report)]) == 0
    told = report.read_text()
    assert told.startswith("before\n")
    assert told.endswith("after\n")
    assert "**No promise was broken in any of these histories.**" in told
    assert read.judge(tmp_path / "proof" / "sqlite-rolling-restart.jsonl.gz")["due"] > 0
