"""Clients that never stop asking, and remember what they were answered."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from dataclasses import dataclass, field

import httpx2

from fencepost.clock import SystemClock

PAUSE = 0.02
LONGEST = 0.3
"""Seconds a request takes on the server, at most, beside what it takes the database."""
PATIENCE = 20.0


@dataclass
class Traffic:
    url: str
    clients: int
    actions: int
    answered: int = 0
    slowest: float = 0.0
    failures: Counter[str] = field(default_factory=Counter)
    pids: Counter[int] = field(default_factory=Counter)
    """How many were answered by each process."""
    _open: bool = True

    async def __aenter__(self) -> Traffic:
        self._tasks = [asyncio.create_task(self._client(number)) for number in range(self.clients)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._open = False
        await asyncio.gather(*self._tasks)

    async def _client(self, number: int) -> None:
        """One request after the other. Connections are kept, some for five requests, some until the server ends them:
        both must be led away from an instance that leaves."""
        chance, keeps = random.Random(number), number % 2 == 0
        async with httpx2.AsyncClient(base_url=self.url, timeout=PATIENCE, trust_env=False) as client:
            for turn in itertools.count():
                if not self._open:
                    return
                if turn % 5 == 4:
                    last = {} if keeps else {"Connection": "close"}
                    await self._ask(client, "POST", f"/actions/{chance.randint(1, self.actions)}/run", last)
                else:
                    await self._ask(client, "GET", f"/work?seconds={chance.uniform(0, LONGEST):.3f}", {})
                await asyncio.sleep(PAUSE)

    async def _ask(self, client: httpx2.AsyncClient, method: str, path: str, headers: dict[str, str]) -> None:
        begun = SystemClock().steady()
        try:
            answer = await client.request(method, path, headers=headers)
            if answer.status_code != 200:
                self.failures[f"{answer.status_code} {answer.text[:80]}"] += 1
                return
        except httpx2.HTTPError as error:
            self.failures[type(error).__name__] += 1
            return
        self.answered += 1
        self.slowest = max(self.slowest, SystemClock().steady() - begun)
        if method == "GET":
            self.pids[answer.json()["pid"]] += 1
