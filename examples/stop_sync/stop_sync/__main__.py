"""All of it on this machine: `python -m stop_sync`. Source server, service and web app, until Ctrl-C."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time

FOR_A_LOOK = {
    "STATE_BACKEND": "sqlite",
    "PIPELINE_SCHEDULE_INTERVAL_HOURS": str(1 / 60),
    "PIPELINE_IMPORT_ETA_SECONDS": "3",
    "STOP_SYNC_PACE": "1",
}
"""A run each minute, slow enough to be watched. What the environment says counts more."""
PATIENCE_SECONDS = 30


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the example on this machine, until Ctrl-C.")
    parser.add_argument("--replicas", type=int, default=1, choices=range(1, 10), help="of the service")
    parser.add_argument("--stops", type=int, default=1500, help="in the invented country")
    parser.add_argument("--sources-port", type=int, default=8790)
    parser.add_argument("--web-port", type=int, default=8791)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    environment = {**FOR_A_LOOK, **sources_at(options.sources_port), **os.environ}
    started = [
        begun(environment, "source_server", f"--port={options.sources_port}", f"--stops={options.stops}"),
        *(begun(environment, "service") for _ in range(options.replicas)),
        begun(environment, "web", f"--port={options.web_port}"),
    ]
    # The first fire of the grid is one interval away.
    first = begun(environment, "job_runner", "--trigger", "first-start")
    try:
        print(f"Open http://127.0.0.1:{options.web_port}; Ctrl-C ends it all.", flush=True)
        return watched(started)
    except KeyboardInterrupt:
        return 130
    finally:
        ended([*started, first])


def sources_at(port: int) -> dict[str, str]:
    root = f"http://127.0.0.1:{port}"
    return {
        "STOP_SYNC_ATLAS_URL": f"{root}/permalink/register",
        "STOP_SYNC_GTFS_URL": f"{root}/permalink/gtfs",
        "STOP_SYNC_OSM_URL": f"{root}/osm.xml",
    }


def begun(environment: dict[str, str], module: str, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", f"stop_sync.{module}", *words], env=environment)


def watched(started: list[subprocess.Popen[bytes]]) -> int:
    """None of them ends by itself. The first that does says why, and the others are of no use without it."""
    while all(each.poll() is None for each in started):
        time.sleep(0.2)
    return 1


def ended(started: list[subprocess.Popen[bytes]]) -> None:
    for each in started:
        each.terminate()
    for each in started:
        try:
            each.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            each.kill()


if __name__ == "__main__":
    sys.exit(main())
