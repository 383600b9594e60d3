"""The simulated way to the store: it delays, reorders, drops requests, and drops replies after the commit."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fencepost.clock import Moment
from fencepost.errors import StoreUnavailable
from fencepost.store.base import Evidence, Store
from fencepost.store.state import StoreState
from fencepost.testing.world import Process, World

TIMEOUT = 1.2
"""Seconds after which a client gives up on a request. The request may arrive all the same."""


@dataclass(slots=True)
class Weather:
    """How bad the network is."""

    lose_request: float = 0.0
    lose_reply: float = 0.0
    slow: float = 0.0
    """Share of messages that are late by up to `latest` seconds."""
    latest: float = 0.0


class Network:
    def __init__(self, world: World, chance: random.Random) -> None:
        self.world = world
        self.chance = chance
        self.state = StoreState()
        self.weather = Weather()
        self.store_is_up = True
        self.store_offset = 0.0
        self.cut_off: set[str] = set()
        """Names of processes that cannot reach the store."""
        self.evidence_every: float | None = None
        self.is_dead: Callable[[str], bool] = lambda name: False
        """Proof of death, where `evidence_every` says that there is such a thing."""
        self.on_commit: Callable[[Process | None, str, tuple[Any, ...], Any], None] = lambda *_: None
        self._waiting: list[tuple[Process, asyncio.Future[bool]]] = []

    def moment(self) -> Moment:
        return Moment(
            self.world.datetime(self.store_offset),
            round(self.world.now + self.store_offset, 6),
        )

    def apply(self, process: Process | None, name: str, args: tuple[Any, ...]) -> Any:
        """Let the store take one step now."""
        reply = getattr(self.state, name)(self.moment(), *args)
        self.on_commit(process, name, args, reply)
        if self.state.hinted:
            self.state.hinted = False
            waiting, self._waiting = self._waiting, []
            for waiter, hint in waiting:
                if self.chance.random() < 0.9:
                    self._deliver(waiter, hint, True)
        return reply

    async def call(self, process: Process, name: str, args: tuple[Any, ...]) -> Any:
        reply: asyncio.Future[Any] = process.create_future()
        timer = process.call_later(TIMEOUT, _fail, reply, f"{name}: no answer")
        lost = self._lost(process, self.weather.lose_request)
        if not lost:
            self.world.at(self.world.now + self._delay(), lambda: self._arrive(process, name, args, reply))
        try:
            return await reply
        finally:
            timer.cancel()

    async def wait(self, process: Process, seconds: float) -> bool:
        hint: asyncio.Future[bool] = process.create_future()
        self._waiting.append((process, hint))
        timer = process.call_later(seconds, _resolve, hint, False)
        try:
            return await hint
        finally:
            timer.cancel()
            self._waiting = [entry for entry in self._waiting if entry[1] is not hint]

    def _arrive(self, process: Process, name: str, args: tuple[Any, ...], reply: asyncio.Future[Any]) -> None:
        if not self.store_is_up:
            return
        answer = self.apply(process, name, args)
        if not self._lost(process, self.weather.lose_reply):
            self._deliver(process, reply, answer)

    def _deliver(self, process: Process, future: asyncio.Future[Any], answer: Any) -> None:
        def arrive() -> None:
            process.call_soon(_resolve, future, answer)

        self.world.at(self.world.now + self._delay(), arrive)

    def _lost(self, process: Process, probability: float) -> bool:
        return process.name in self.cut_off or self.chance.random() < probability

    def _delay(self) -> float:
        if self.weather.slow and self.chance.random() < self.weather.slow:
            return self.chance.uniform(0.0, self.weather.latest)
        return self.chance.uniform(0.0005, 0.004)


def remote_store(network: Network, process: Process) -> Store:
    """The store as one process sees it."""

    def method(name: str) -> Callable[..., Any]:
        async def call(self: Store, *args: Any) -> Any:
            return await network.call(process, name, args)

        return call

    async def nothing(self: Store) -> None:
        return None

    async def wait(self: Store, seconds: float) -> bool:
        return await network.wait(process, seconds)

    methods: dict[str, Any] = {name: method(name) for name in sorted(Store.__abstractmethods__)}

    async def evidence(self: Store, replicas: Sequence[str]) -> Evidence:
        return Evidence(dead=frozenset(name for name in replicas if network.is_dead(name)))

    methods |= {"open": nothing, "close": nothing, "wait": wait, "evidence": evidence}
    methods["evidence_every"] = network.evidence_every
    remote: Store = type("RemoteStore", (Store,), methods)()
    return remote


def _resolve(future: asyncio.Future[Any], answer: Any) -> None:
    if not future.done():
        future.set_result(answer)


def _fail(future: asyncio.Future[Any], text: str) -> None:
    if not future.done():
        future.set_exception(StoreUnavailable(text))
