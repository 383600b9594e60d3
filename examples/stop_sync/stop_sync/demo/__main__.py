"""`make demo`, or `python -m stop_sync.demo`: until Ctrl-C, or for `--seconds 60`."""

from __future__ import annotations

import argparse
import signal
import socket
import sys
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from fencepost.cli.output import console, note
from fencepost.demo.processes import Replicas
from fencepost.demo.show import Interrupted, Show, View, temporary_folder
from fencepost.demo.watch import Watch
from fencepost.errors import FencepostError
from fencepost.store.base import Store
from stop_sync.demo.ending import Account, reckon, tell
from stop_sync.demo.plot import Company, CutOff, Plot
from stop_sync.demo.view import INTRO, Lines, Screen

SOURCES_PORT, WEB_PORT = 8790, 8791
LEAST_SECONDS, MOST_SECONDS = 10, 3600
INTERVAL_SECONDS = 20
PACKAGE = Path(__file__).parents[1]


@dataclass
class Demo(Show[Account]):
    sources: str = field(kw_only=True)
    web: str = field(kw_only=True)
    pace: float = field(kw_only=True)
    cut_off: list[CutOff] = field(default_factory=list)

    @property
    def database(self) -> Path:
        return self.folder / "state" / "fencepost.db"

    def replicas(self) -> Replicas:
        """A run every 20 seconds, each phase slowed down for the eye, and little patience with those who leave."""
        environment = {
            "PYTHONPATH": str(PACKAGE.parent),
            "STATE_BACKEND": "sqlite",
            "STATE_DIR": str(self.database.parent),
            "STOP_SYNC_DATA_DIR": str(self.folder / "data"),
            "STOP_SYNC_ATLAS_URL": f"{self.sources}/permalink/register",
            "STOP_SYNC_GTFS_URL": f"{self.sources}/permalink/gtfs",
            "STOP_SYNC_OSM_URL": f"{self.sources}/osm.xml",
            "STOP_SYNC_PACE": str(self.pace),
            "PIPELINE_SCHEDULE_INTERVAL_HOURS": str(INTERVAL_SECONDS / 3600),
            "PIPELINE_IMPORT_ETA_SECONDS": "4",
            "STOP_SYNC_PRESENCE_SECONDS": "20",
            "FENCEPOST_EXECUTE_ON": "leader",
            "FENCEPOST_DRAIN_TIMEOUT": "0.2",
            "FENCEPOST_READY_DELAY": "0",
        }
        return Company(self.folder, environment)

    def plot(self, store: Store, replicas: Replicas, watch: Watch) -> Plot:
        return Plot(store, replicas, watch, self.stage, self.sources, self.web, self.seconds, self.cut_off)

    async def reckoned(self, store: Store, replicas: Replicas, until: datetime) -> Account:
        return await reckon(store, replicas, self.cut_off, self.stage.takeovers, until)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description="The whole system, and its leader killed.")
    parser.add_argument("--seconds", type=float, help=f"end by itself, after {LEAST_SECONDS} or more")
    parser.add_argument("--keep", action="store_true", help="keep the folder with databases and logs")
    parser.add_argument("--pace", type=float, default=0.7, help="seconds by which each phase is slowed down")
    options = parser.parse_args()
    if options.seconds is not None and not LEAST_SECONDS <= options.seconds <= MOST_SECONDS:
        parser.error(f"--seconds: give {LEAST_SECONDS} to {MOST_SECONDS}; a run takes about 10")
    if sys.platform == "win32":
        parser.error("the services share a SQLite file, which needs Linux or macOS")
    with temporary_folder(options.keep) as folder:
        (folder.path / "state").mkdir()
        web, sources = (f"http://127.0.0.1:{free(port)}" for port in (WEB_PORT, SOURCES_PORT))
        looks = view(web, options.seconds)
        show = Demo(folder.path, looks, options.seconds, sources=sources, web=web, pace=options.pace)
        code = 1
        try:
            code = played(show)
        finally:
            folder.keep = options.keep or code == 1
            if folder.keep:
                note(f"The databases and logs are in {folder.path}")
        return code


def played(show: Demo) -> int:
    try:
        account = show.run()
    except Interrupted:
        note("Interrupted: all processes were killed.")
        return 130
    except FencepostError as error:
        note(f"The demo failed: {error}")
        return 1
    tell(account, show.store_url)
    if not account.is_right:
        return 1
    return 130 if show.interrupted_by == signal.SIGINT else 0


def view(web: str, seconds: float | None) -> View:
    intro, screen = INTRO.format(replicas="Three", web=web), console()
    if not screen.is_terminal or screen.is_dumb_terminal:
        return Lines(sys.stdout, intro)
    return Screen(screen, intro, seconds)


def free(port: int) -> int:
    """This one; another if somebody has it."""
    for number in (port, 0):
        with closing(socket.socket()) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind(("127.0.0.1", number))
            except OSError:
                continue
            return int(tried.getsockname()[1])
    raise FencepostError("no free port on 127.0.0.1")


if __name__ == "__main__":
    sys.exit(main())
