"""People who watch the dashboard live, as a process: `python -m bench.dashboard_load PORT SECONDS PEOPLE PATH...`.

Each has one stream of events open, and asks for its page again as the page's script does: every two seconds, as
something happens each second.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Sequence

from bench.reader_load import _drain, _sent, _status

EVERY = 2.0
HEAD = "GET {} HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\nFencepost-Part: main\r\n"


def main(port: int, seconds: float, people: int, *paths: str) -> None:
    os.nice(10)  # they are other machines: what they do to their own is not measured
    until = time.monotonic() + seconds
    counted: list[int] = []
    streams = [_sent(port, "/api/v1/events", close=False) for _ in range(people)]
    threads = [
        threading.Thread(target=_watch, args=(port, until, n / people, paths, counted)) for n in range(people)
    ]
    threads.append(threading.Thread(target=_drain, args=(streams, until)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for stream in streams:
        stream.close()
    print(json.dumps({"answers": len(counted), "bad": sum(status != 200 for status in counted)}))


def _watch(port: int, until: float, offset: float, paths: Sequence[str], counted: list[int]) -> None:
    time.sleep(offset * EVERY)
    while time.monotonic() < until:
        begun = time.monotonic()
        for path in paths:
            counted.append(_status(_asked(port, path)))
        time.sleep(max(0.0, EVERY - (time.monotonic() - begun)))


def _asked(port: int, path: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    connection.sendall(f"{HEAD.format(path)}Accept-Encoding: gzip\r\nConnection: close\r\n\r\n".encode())
    return connection


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
