"""`make demo`, or `python -m stop_sync.demo`: three services lose their leader in the middle of a run.

The whole system on this machine: a server with the sources, the services and the web app, each a process of its own.
"""

from __future__ import annotations

import argparse
import signal
import sys
from contextlib import suppress
from pathlib import Path

import httpx2

from fencepost import AnotherRunIsActive
from fencepost.cli.demo.stage import LONGEST, Stage, free_port
from stop_sync.pipeline import NAME

INTRO = (
    "Three services share one SQLite file. One leads and runs the pipeline, the others stand by. In the middle of a "
    "run the leader is killed, and another goes on from there.\nIn the browser: {web}"
)
PHASE = "matching"
"""In which the leader is lost: three phases or more are done, the import is ahead."""
HOLD = f"{PHASE}.hold"
"""While this file is there, the run stays in that phase: a slow machine might pass through it between two looks."""
INTERVAL_SECONDS = 20
SHORTEST = 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description="The whole system loses its leader.")
    parser.add_argument("--seconds", type=float, help=f"end by itself, after {SHORTEST} or more")
    parser.add_argument("--keep", action="store_true", help="keep the folder with databases and logs")
    parser.add_argument("--pace", type=float, default=0.7, help="seconds by which each phase is slowed down")
    given = parser.parse_args()
    if given.seconds is not None and not SHORTEST <= given.seconds <= LONGEST:
        parser.error(f"--seconds: give {SHORTEST} to {LONGEST:g}; a run takes about 10")
    sources, web = (f"http://127.0.0.1:{free_port(port)}" for port in (8790, 8791))

    async def story(stage: Stage) -> None:
        stage.hold(HOLD)
        stage.say("Starting a source server, three services and a web app.")
        stage.start("sources", "stop_sync.source_server", "--port", sources.rpartition(":")[2])
        stage.start("web", "stop_sync.web", "--port", web.rpartition(":")[2])
        dashboard = stage.start_dashboard()
        await stage.join(3)
        await stage.until(lambda: answers(f"{web}/healthz"), "the web app answers")
        stage.say(f"Open {web} and watch the label at the top right. A run is started by hand.")
        await stage.show_dashboard(dashboard)
        stage.start("by-hand", "stop_sync.job_runner", "--service", "--trigger", "manual")
        # On a slow machine the calendar's first run may be there before it.
        stage.exit_codes["by-hand"] = (0, AnotherRunIsActive.exit_code)
        await stage.lose_leader(signal.SIGKILL, NAME, PHASE)
        await stage.until(lambda: stage.processes["by-hand"].poll() is not None, "the trigger by hand ends")
        version, whole = 1, given.seconds or LONGEST
        while stage.elapsed() + INTERVAL_SECONDS < whole:
            version += 1  # else the next run would find its sources as they were, and do without them
            switch = f"{sources}/switch/register"
            httpx2.post(switch, json={"version": version}, trust_env=False).raise_for_status()
            stage.hold(HOLD)
            stage.say(f"The register is published anew, version {version}: the next run fetches it.")
            await stage.lose_leader(signal.SIGTERM, NAME, PHASE)
        await stage.at(whole)

    settings, service = environment(sources, given.pace), ["stop_sync.service"]
    return Stage(INTRO.format(web=web), story, service, settings, given.seconds, given.keep).run()


def environment(sources: str, pace: float) -> dict[str, str]:
    """Each phase is slowed down to be watched; a service that stops gives its run back at once."""
    return {
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "STATE_BACKEND": "sqlite",
        "STATE_DIR": ".",
        "STOP_SYNC_DATA_DIR": "data",
        "STOP_SYNC_ATLAS_URL": f"{sources}/permalink/register",
        "STOP_SYNC_GTFS_URL": f"{sources}/permalink/gtfs",
        "STOP_SYNC_OSM_URL": f"{sources}/osm.xml",
        "STOP_SYNC_PACE": str(pace),
        "STOP_SYNC_HOLD": HOLD,
        "STOP_SYNC_PRESENCE_SECONDS": "20",
        "PIPELINE_SCHEDULE_INTERVAL_HOURS": str(INTERVAL_SECONDS / 3600),
        "PIPELINE_IMPORT_ETA_SECONDS": "4",
        "FENCEPOST_EXECUTE_ON": "leader",
        "FENCEPOST_DRAIN_TIMEOUT": "0.2",
        "FENCEPOST_READY_DELAY": "0",
    }


def answers(url: str) -> bool:
    with suppress(httpx2.TransportError):
        return httpx2.get(url, trust_env=False).is_success
    return False


if __name__ == "__main__":
    sys.exit(main())
