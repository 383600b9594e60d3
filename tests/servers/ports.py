"""Ports for servers that must come back on the same one."""

from __future__ import annotations

import contextlib
import random
import socket

HOST = "127.0.0.1"
PORTS = range(15_000, 32_000)
"""Below the ports that systems give to outgoing connections: one of those could take a server's place while it is
down."""


class Port:
    """A number that nobody else here uses until `release`, also while no server listens on it.

    Test processes run side by side, so looking for a free port is not enough: two could find the same. The UDP port
    of the same number is the reservation. None of our servers uses UDP, and the system frees it when we die.
    """

    def __init__(self) -> None:
        for number in random.sample(PORTS, 200):
            reservation = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            with contextlib.suppress(OSError):
                reservation.bind((HOST, number))
                _check_free(number)
                self.number = number
                self._reservation = reservation
                return
            reservation.close()
        raise RuntimeError(
            f"no free port among 200 from {PORTS.start} to {PORTS.stop - 1}; are they all in use?"
        )

    def release(self) -> None:
        self._reservation.close()


def _check_free(number: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # connections that have just ended do not count
        probe.bind((HOST, number))
