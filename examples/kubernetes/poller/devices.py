"""Devices to poll, invented: `python -m poller.devices`. They fail now and then, the same way for the same seed.

curl localhost:8900/devices/3                       its reading
curl -X POST 'localhost:8900/devices/3?fail=4'      its next four answers are 503
curl -X POST 'localhost:8900/devices/3?seconds=2'   it takes its time from now on
curl localhost:8900/polls                           the last polls: who asked, for which fire
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections import Counter, deque
from dataclasses import asdict, dataclass, field

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

REMEMBERED = 100_000
SHOWN = 50


@dataclass(frozen=True)
class Poll:
    device: int
    fire: str
    token: int
    replica: str
    answered: bool
    """Whether the device gave a reading; if not, it failed."""
    at: float
    """Seconds, on the clock of the event loop."""


@dataclass
class Fleet:
    seed: int = 1
    failing: float = 0.1
    """Which share of the polls fails."""
    polls: deque[Poll] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    to_fail: Counter[int] = field(default_factory=Counter)
    seconds: dict[int, float] = field(default_factory=dict)
    _asked: Counter[int] = field(default_factory=Counter)

    def reading(self, device: int) -> float | None:
        """The next one; None: it fails. What a device does depends on the seed and on how often it was asked."""
        self._asked[device] += 1
        chance = random.Random(f"{self.seed}/{device}/{self._asked[device]}")
        if self.to_fail[device] > 0:
            self.to_fail[device] -= 1
            return None
        return None if chance.random() < self.failing else round(chance.gauss(20.0, 2.0), 2)

    @property
    def app(self) -> Starlette:
        device = "/devices/{device:int}"
        return Starlette(
            routes=[
                Route(device, self._read),
                Route(device, self._switch, methods=["POST"]),
                Route("/polls", self._show),
            ]
        )

    async def _read(self, request: Request) -> JSONResponse:
        device, asker = request.path_params["device"], request.headers
        value = self.reading(device)
        self.polls.append(
            Poll(
                device=device,
                fire=asker.get("x-fire", "")[:300],
                token=_number(asker.get("x-token", "")),
                replica=asker.get("x-replica", "")[:200],
                answered=value is not None,
                at=asyncio.get_running_loop().time(),
            )
        )
        await asyncio.sleep(self.seconds.get(device, 0.0))
        if value is None:
            return JSONResponse({"error": "the device is busy"}, 503)
        return JSONResponse({"device": device, "value": value})

    async def _switch(self, request: Request) -> JSONResponse:
        device, asked = request.path_params["device"], request.query_params
        if "fail" in asked:
            self.to_fail[device] = min(_number(asked["fail"]), 1_000)
        if "seconds" in asked:
            self.seconds[device] = float(min(_number(asked["seconds"]), 60))
        return JSONResponse({"fail": self.to_fail[device], "seconds": self.seconds.get(device, 0.0)})

    async def _show(self, _: Request) -> JSONResponse:
        return JSONResponse([asdict(poll) for poll in list(self.polls)[-SHOWN:]])


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 30 else 0


def main() -> None:
    options = argparse.ArgumentParser(
        prog="python -m poller.devices", description="Devices to poll, invented."
    )
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--port", type=int, default=8900)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--failing", type=float, default=0.1, help="which share of the polls fails")
    given = options.parse_args()
    uvicorn.run(Fleet(given.seed, given.failing).app, host=given.host, port=given.port, log_level="warning")


if __name__ == "__main__":
    main()
