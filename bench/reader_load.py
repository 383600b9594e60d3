"""Those who look, as a process of its own: `python -m bench.reader_load PORT SECONDS [CLIENTS STREAMS]`."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time


def main(port: int, seconds: float, clients: int = 5, streams: int = 50) -> None:
    os.nice(10)  # they are other machines: what they do to their own is not measured
    until = time.monotonic() + seconds
    counted: list[int] = []
    opened = [_sent(port, "/api/v1/events", close=False) for _ in range(streams)]
    threads = [threading.Thread(target=_loop, args=(port, until, counted)) for _ in range(clients)]
    threads.append(threading.Thread(target=_scrape, args=(port, until)))
    threads.append(threading.Thread(target=_drain, args=(opened, until)))
    for thread in threads if clients else threads[-1:]:
        thread.start()
    for thread in threads if clients else threads[-1:]:
        thread.join()
    for stream in opened:
        stream.close()
    print(json.dumps({"answers": len(counted), "bad": sum(status != 200 for status in counted)}))


def _loop(port: int, until: float, counted: list[int]) -> None:
    while time.monotonic() < until:
        counted.append(_status(_sent(port, "/api/v1/status")))


def _scrape(port: int, until: float) -> None:
    while time.monotonic() < until:
        _status(_sent(port, "/metrics"))
        time.sleep(1)


def _drain(streams: list[socket.socket], until: float) -> None:
    for stream in streams:
        stream.setblocking(False)
    while time.monotonic() < until:
        for stream in streams:
            try:
                stream.recv(1 << 16)
            except BlockingIOError:
                continue
        time.sleep(0.25)


def _sent(port: int, path: str, close: bool = True) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    how = "close" if close else "keep-alive"
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\nConnection: {how}\r\n\r\n"
    connection.sendall(head.encode())
    return connection


def _status(connection: socket.socket) -> int:
    buffer = bytearray(1 << 20)
    with connection:
        first = connection.recv_into(buffer)
        status = int(bytes(buffer[9:12])) if first else 0
        while connection.recv_into(buffer):
            pass
    return status


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), *map(int, sys.argv[3:]))
