"""The pipeline: what it fetches, the types of its runs, and its phases in order.

Replicas share the data directory. A run that is cut off goes on with the first phase that has not ended.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

from fencepost import Pipeline, Retry, Source
from fencepost.model import Json
from fencepost.pipeline import PipelineRun, rule
from stop_sync.artefacts import FILES, count_rows
from stop_sync.database import Database
from stop_sync.model import KINDS
from stop_sync.preprocess import REGISTER, STEP_SECONDS, TIMETABLE, preprocess, preprocess_osm, wait
from stop_sync.settings import Settings
from stop_sync.tables import DYNAMIC, STATIC, fill

NAME = "stops"
MODES = ("full", "match-import")
COMPLETE, CACHED, BOOTSTRAP = RUN_TYPES = ("complete", "atlas_cached", "atlas_cached_bootstrap")
MOST_DOWNLOADED_BYTES = 4 << 30

Phase = Callable[[PipelineRun], Json]


class Incomplete(Exception):
    """Files that an earlier run should have left are missing."""


def pipeline_of(settings: Settings) -> Pipeline:
    does = Phases(settings)
    pipeline = Pipeline(
        NAME,
        modes=MODES,
        run_types=RUN_TYPES,
        sources=[
            _source(settings, "atlas", settings.atlas_url, "stops", "operators"),
            _source(settings, "gtfs", settings.gtfs_url, "gtfs_stops"),
            # The map changes every minute and its server names no validators: it is fetched every time.
            _source(settings, "osm", settings.osm_url, "osm_nodes", probe=False),
        ],
        rules=[
            rule(COMPLETE, modes=["match-import"]),
            rule(COMPLETE, forced=True),
            rule(COMPLETE, when=lambda run: settings.force_full_refresh),
            rule(COMPLETE, changed=True),
            rule(COMPLETE, when=lambda run: does.static_digest() != run.kept.get("static")),
            rule(CACHED, when=lambda run: does.database.filled(STATIC)),
            rule(BOOTSTRAP),
        ],
    )

    def add(name: str, message: str, phase: Phase, *leaves: str, **options: Json) -> None:
        files = [does.folder / FILES[KINDS[each]] for each in leaves]
        pace = settings.pace * (3 if options.get("blocking") else 1)  # the overlay is worth a longer look
        if settings.hold and settings.hold.stem == name:
            phase = held(phase, settings.hold)
        if "executor" not in options:
            phase = paced(phase, pace)
        pipeline.phase(name, message=message, artefacts=files, **options)(phase)

    fetched: dict[str, Json] = {"modes": ["full"]}
    if_changed: dict[str, Json] = {"modes": ["full"], "run_types": [COMPLETE]}
    everything = [*STATIC, *DYNAMIC]
    add("atlas_download", "Downloading the register", does.atlas_download, **if_changed)
    add("gtfs_download", "Downloading the timetable", does.gtfs_download, **if_changed)
    reading = partial(
        preprocess,
        raw=str(settings.raw.absolute()),
        folder=str(settings.artefacts.absolute()),
        timezone=settings.timezone,
        pace_seconds=settings.pace.total_seconds(),
    )
    apart: dict[str, Json] = {**if_changed, "executor": "process"}
    add("preprocessing", "Reading register and timetable", reading, *STATIC, **apart)
    add("osm_download", "Downloading the map", does.osm_download, "osm_nodes", **fetched)
    add("matching", "Matching stops", does.matching, "matches")
    add("problems", "Looking for problems", does.problems, "problems")
    add(
        "import",
        "Importing",
        does.import_,
        blocking=True,
        eta=settings.import_eta,
        rewrites={COMPLETE: everything, BOOTSTRAP: everything, CACHED: [*DYNAMIC]},
    )
    add("stats_finalize", "Counting", does.stats_finalize)
    return pipeline


class Phases:
    """What each phase does, but for the preprocessing. They are functions, so they run in threads."""

    def __init__(self, settings: Settings) -> None:
        self.folder = settings.artefacts
        self.database = Database(settings.database_url)
        self._raw = settings.raw

    def atlas_download(self, run: PipelineRun) -> None:
        self._download(run, "atlas", REGISTER)

    def gtfs_download(self, run: PipelineRun) -> None:
        self._download(run, "gtfs", TIMETABLE)

    def osm_download(self, run: PipelineRun) -> Json:
        path = self._download(run, "osm", "osm.xml")
        return str(preprocess_osm(path, self.folder))

    def matching(self, run: PipelineRun) -> Json:
        # Only here, and in the next phase: SciPy takes longer to import than all the rest, and the web app, or a run by
        # hand that finds no store, should not wait for it.
        from stop_sync.compare import write_matches

        needed = [self.folder / FILES[KINDS[each]] for each in (*STATIC, "osm_nodes")]
        if missing := [path.name for path in needed if not path.exists()]:
            raise Incomplete(f"{', '.join(missing)} are missing in {self.folder}; run --mode full first")

        def tell(done: int, total: int, stage: str) -> None:
            run.report(done=done, total=total, message=f"Matching: {stage}")

        return write_matches(self.folder, tell)

    def problems(self, run: PipelineRun) -> Json:
        from stop_sync.compare import write_problems

        return write_problems(self.folder)

    def import_(self, run: PipelineRun) -> Json:
        """The rows of all tables change in one transaction, or none does."""
        tables = run.progress.rewritten
        total = sum(count_rows(self.folder, KINDS[table]) for table in tables)

        def tell(done: int, table: str) -> None:
            run.report(done=done, total=total, message=f"Importing {table}")

        with self.database.writing() as connection, run.publish(connection, *tables) as new:
            rows = fill(connection, new, self.folder, self.database.dialect, tell)
        run.keep(static=self.static_digest())
        return rows

    def stats_finalize(self, run: PipelineRun) -> Json:
        with self.database.reading() as ask:
            counts = {table: ask(f"select count(*) from {table}", ())[0][0] for table in (*STATIC, *DYNAMIC)}
        run.keep(rows=counts)
        return counts

    def static_digest(self) -> str:
        """Of the files made of register and timetable. A run that failed later, or was made elsewhere, has left others
        than those of the last success: these must not be reused, although they are there and nothing has changed."""
        digest = hashlib.sha256()
        for table in STATIC:
            path = self.folder / FILES[KINDS[table]]
            digest.update(path.read_bytes() if path.exists() else b"none")
        return digest.hexdigest()

    def _download(self, run: PipelineRun, source: str, file: str) -> Path:
        return run.download(source, self._raw / file, most_bytes=MOST_DOWNLOADED_BYTES)


def paced(phase: Phase, pace: timedelta) -> Phase:
    """The phase, after so long a wait."""
    if not pace:
        return phase

    def slowly(run: PipelineRun) -> Json:
        wait(run, pace.total_seconds())
        return phase(run)

    return slowly


def held(phase: Phase, hold: Path) -> Phase:
    """The phase, once the file is gone."""

    def after(run: PipelineRun) -> Json:
        while hold.exists():
            wait(run, STEP_SECONDS)
        return phase(run)

    return after


def _source(settings: Settings, name: str, url: str, *artefacts: str, probe: bool = True) -> Source:
    return Source(
        name,
        url,
        artefacts=[settings.artefacts / FILES[KINDS[each]] for each in artefacts],
        modes=["full"],
        probe=probe,
        allow_hosts=settings.allow_hosts,
        allow_private=settings.private_allowed(url),
        retry=Retry(attempts=3, first=settings.retry_after.total_seconds(), cap=600),
    )
