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
RESTART_SECONDS = 3
"""Until a service that was killed is started again: time to see another one go on with its run."""

Process = subprocess.Popen[bytes]


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the example on this machine, until Ctrl-C.")
    parser.add_argument("--replicas", type=int, default=1, choices=range(1, 10), help="of the service")
    parser.add_argument("--stops", type=int, default=1500, help="in the invented country")
    parser.add_argument("--sources-port", type=int, default=8790)
    parser.add_argument("--web-port", type=int, default=8791)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    environment = {**FOR_A_LOOK, **sources_at(options.sources_port), **os.environ}
    others = [
        begun(environment, "source_server", f"--port={options.sources_port}", f"--stops={options.stops}"),
        begun(environment, "web", f"--port={options.web_port}"),
    ]
    services = [begun(environment, "service") for _ in range(options.replicas)]
    # The first fire of the grid is one interval away.
    first = begun(environment, "job_runner", "--trigger", "first-start")
    try:
        print(f"Open http://127.0.0.1:{options.web_port}; Ctrl-C ends it all.", flush=True)
        return watched(environment, services, others)
    except KeyboardInterrupt:
        return 130
    finally:
        ended([*others, *services, first])


def sources_at(port: int) -> dict[str, str]:
    root = f"http://127.0.0.1:{port}"
    return {
        "STOP_SYNC_ATLAS_URL": f"{root}/permalink/register",
        "STOP_SYNC_GTFS_URL": f"{root}/permalink/gtfs",
        "STOP_SYNC_OSM_URL": f"{root}/osm.xml",
    }


def begun(environment: dict[str, str], module: str, *words: str) -> Process:
    return subprocess.Popen([sys.executable, "-m", f"stop_sync.{module}", *words], env=environment)


def watched(environment: dict[str, str], services: list[Process], others: list[Process]) -> int:
    """A service that was killed is started again, as compose does it; meanwhile the other replicas go on. One that
    ends by itself has said why, and would do so again; and none is of use without the sources and the pages."""
    while all(each.poll() is None for each in others):
        for number, service in enumerate(services):
            code = service.poll()
            if code is not None and code >= 0:
                return 1
            if code is not None:
                name = signal.Signals(-code).name
                print(
                    f"Service {service.pid}: {name}. It is started again in {RESTART_SECONDS} s.", flush=True
                )
                time.sleep(RESTART_SECONDS)
                services[number] = begun(environment, "service")
        time.sleep(0.2)
    return 1


def ended(started: list[Process]) -> None:
    for each in started:
        each.terminate()
    for each in started:
        try:
            each.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            each.kill()


if __name__ == "__main__":
    sys.exit(main())
