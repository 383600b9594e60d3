"""Sources into artefacts. Each function reads one download, writes what it is made of, and says what it left out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from pathlib import Path
from zoneinfo import ZoneInfo

from fencepost.model import Json
from fencepost.pipeline import PipelineRun
from stop_sync.artefacts import Row, read_rows, write_rows
from stop_sync.model import GtfsStop, Operator, OsmNode, Stop
from stop_sync.reading.checks import Tally
from stop_sync.reading.gtfs import read_gtfs
from stop_sync.reading.osm import read_osm
from stop_sync.reading.register import read_register

REGISTER, TIMETABLE = "atlas.zip", "gtfs.zip"
"""The downloads."""
STEP_SECONDS = 0.1


def preprocess(run: PipelineRun, *, raw: str, folder: str, timezone: str, pace_seconds: float) -> Json:
    """The phase. It has a process of its own, and is given all it needs: reading half a million rows is work for
    which threads would wait for each other, heartbeats and the run's cancel among them."""
    wait(run, pace_seconds)
    today = run.fire.now().astimezone(ZoneInfo(timezone)).date()
    tallies = [preprocess_register(Path(raw, REGISTER), Path(folder), today)]
    run.report(done=1, total=2)
    tallies.append(preprocess_gtfs(Path(raw, TIMETABLE), Path(folder)))
    return {tally.source: str(tally) for tally in tallies}


def wait(run: PipelineRun, seconds: float) -> None:
    """For people who watch; a run that is told to end waits no longer."""
    steps = round(seconds / STEP_SECONDS)
    for step in range(steps):
        run.report(done=step, total=steps)
        time.sleep(STEP_SECONDS)


def preprocess_register(archive: Path, folder: Path, on: date) -> Tally:
    tally = Tally("register")
    operators: dict[str, Operator] = {}

    def stops() -> Iterator[Stop]:
        for stop, operator in read_register(archive, on, tally):
            operators[operator.sboid] = operator
            yield stop

    write_rows(folder, Stop, _usable(stops(), lambda stop: stop.sloid, tally))
    write_rows(folder, Operator, operators.values())
    return tally


def preprocess_gtfs(archive: Path, folder: Path) -> Tally:
    """After the register: the timetable's stops are identified by it."""
    tally = Tally("timetable")
    found = read_gtfs(archive, read_rows(folder, Stop), tally)
    write_rows(folder, GtfsStop, _usable(found, lambda stop: stop.stop_id, tally))
    return tally


def preprocess_osm(path: Path, folder: Path) -> Tally:
    tally = Tally("map")
    write_rows(folder, OsmNode, _usable(read_osm(path, tally), lambda node: node.id, tally))
    return tally


def _usable(rows: Iterable[Row], key: Callable[[Row], object], tally: Tally) -> Iterator[Row]:
    """Each once, counted. Judged inside the writing of the file: a source that turns out to be unusable leaves the
    old file in place."""
    seen: set[object] = set()
    for row in rows:
        if key(row) in seen:
            tally.passed_over["repeated"] += 1
            continue
        seen.add(key(row))
        tally.kept += 1
        yield row
    tally.check()
