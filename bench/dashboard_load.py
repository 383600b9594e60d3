"""People who watch the dashboard live, as a process of its own: `python -m bench.dashboard_load PORT SECONDS PEOPLE`.

Each has one stream of events open, and asks for the parts of its page again as a browser does: every two seconds.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

from bench.reader_load import _drain, _sent, _status

EVERY = 2.0
PARTS = ("/api/v1/overview", "/api/v1/lanes")


def main(port: int, seconds: float, people: int) -> None:
    os.nice(10)  # they are other machines: what they do to their own is not measured
    until = time.monotonic() + seconds
    counted: list[int] = []
    streams = [_sent(port, "/api/v1/events", close=False) for _ in range(people)]
    threads = [
        threading.Thread(target=_watch, args=(port, until, n / people, counted)) for n in range(people)
    ]
    threads.append(threading.Thread(target=_drain, args=(streams, until)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for stream in streams:
        stream.close()
    print(json.dumps({"answers": len(counted), "bad": sum(status != 200 for status in counted)}))


def _watch(port: int, until: float, offset: float, counted: list[int]) -> None:
    time.sleep(offset * EVERY)
    while time.monotonic() < until:
        begun = time.monotonic()
        for path in PARTS:
            counted.append(_status(_sent(port, path)))
        time.sleep(max(0.0, EVERY - (time.monotonic() - begun)))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
