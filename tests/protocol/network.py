"""The simulated way to the store, and the server at its end.

Messages are late, overtake each other, or get lost: a request before it is applied, a reply after the commit. The
server takes one step at a time, may be slow or down, and its clocks may step.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fencepost.clock import Moment
from fencepost.errors import StoreUnavailable
from fencepost.store.base import Evidence, Notices, Store
from fencepost.store.state import StoreState
from fencepost.store.unreadable import RowUnreadable
from fencepost.testing.world import Process, World
from tests.protocol.model import OPERATIONS

TIMEOUT = 1.2
"""Seconds after which a client gives up on a request. The request may arrive all the same."""

LONGEST_LINE = 3.0
"""Seconds of waiting after which a server turns requests away."""


@dataclass(slots=True)
class Weather:
    """How bad the network is."""

    lose_request: float = 0.0
    lose_reply: float = 0.0
    slow: float = 0.0
    """Share of messages that are late by up to `latest` seconds."""
    latest: float = 0.0


@dataclass(eq=False, slots=True)
class Request:
    """One message to the store on its way there and back."""

    process: Process
    name: str
    args: tuple[Any, ...]
    answer: asyncio.Future[Any]
    sent: float
    start: int
    """Of the server it was sent to. A connection does not outlive the server it was made to."""
    step: int = 0
    """The step of the store it became."""
    reply: Any = None


class Network:
    def __init__(self, world: World, chance: random.Random, state: StoreState | None = None) -> None:
        self.world = world
        self.chance = chance
        self.state = state or StoreState()
        self.weather = Weather()
        self.store_is_up = True
        self.service_time = 0.0
        """Seconds the server needs for a step. Others wait in line meanwhile."""
        self.store_offset = 0.0
        """How wrong the server's wall clock is, in seconds."""
        self.steady_offset = 0.0
        """The same for its steady clock, where a step of the wall clock moves that, too."""
        self.cut_off: set[str] = set()
        """Names of processes that cannot reach the store."""
        self.deaf: set[str] = set()
        """Names of processes whose requests arrive, but not the replies."""
        self.evidence_every: float | None = None
        self.is_dead: Callable[[str], bool] = lambda name: False
        """Proof of death, where `evidence_every` says that there is such a thing."""
        self.on_commit: Callable[[Process | None, str, tuple[Any, ...], Any], None] = lambda *_: None
        self.on_send: Callable[[Process, str], float] = lambda *_: 0.0
        """Told when a process sends something; says for how many seconds it is held up on its way."""
        self.finding_server: Callable[[str], float] = lambda name: 0.0
        """Seconds that a request of this name takes to find its server. It is composed before that."""
        self.refusal: Callable[[str, tuple[Any, ...]], Exception | None] = lambda *_: None
        """What the server answers in place of taking a step: it cannot write this."""
        self.on_refusal: Callable[[Request], None] = lambda request: None
        """Told when the store refuses a step because of a row that cannot be read."""
        self.on_delivery: Callable[[Request], None] = lambda request: None
        """Told when a process takes a reply into its hands."""
        self.steps = 0
        self.handling: Request | None = None
        """The request whose step is being taken."""
        self._starts = 0
        """Of the server. What was under way to it before does not survive one."""
        self._busy_until = 0.0
        self._waiting: list[tuple[Process, asyncio.Future[bool]]] = []

    def moment(self) -> Moment:
        return Moment(
            self.world.datetime(self.store_offset),
            round(self.world.now + self.steady_offset, 6),
        )

    def restart_store(self) -> None:
        """Whatever it was about to do, and whom it was to hint, is forgotten."""
        self._starts += 1
        self._busy_until = 0.0
        self._waiting = []

    def apply(self, process: Process | None, name: str, args: tuple[Any, ...]) -> Any:
        """Let the store take one step now."""
        self.steps += 1
        reply = OPERATIONS[name](self.state, self.moment(), *args)
        self.on_commit(process, name, args, reply)
        if self.state.notify:
            self.state.notify = False
            waiting, self._waiting = self._waiting, []
            for waiter, hint in waiting:
                if self.chance.random() < 0.9:
                    self._deliver(waiter, _resolve, hint, True)
        return reply

    async def call(self, process: Process, name: str, args: tuple[Any, ...]) -> Any:
        answer: asyncio.Future[Any] = process.create_future()
        timer = process.call_later(TIMEOUT, _fail, answer, f"{name}: no answer")
        request = Request(process, name, args, answer, self.world.now, self._starts)
        held_up = self.on_send(process, name)
        if not self._lost(process, self.weather.lose_request):
            under_way = self._delay() + held_up
            if found_in := self.finding_server(name):
                self.world.at(self.world.now + found_in, lambda: self._leave(request, under_way))
            else:
                self._leave(request, under_way)
        try:
            return await answer
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

    def _leave(self, request: Request, seconds: float) -> None:
        """For the server of this moment."""
        request.start = self._starts
        self.world.at(self.world.now + seconds, lambda: self._arrive(request))

    def _arrive(self, request: Request) -> None:
        if not self.service_time and self._busy_until <= self.world.now:
            self._handle(request)
            return
        if self.backlog > LONGEST_LINE:
            return
        self._busy_until = max(self.world.now, self._busy_until) + self.service_time
        self.world.at(self._busy_until, lambda: self._handle(request))

    @property
    def backlog(self) -> float:
        """Seconds until what waits in line is done."""
        return max(0.0, self._busy_until - self.world.now)

    def _handle(self, request: Request) -> None:
        if not self.store_is_up or request.start != self._starts:
            return
        if (refusal := self.refusal(request.name, request.args)) is not None:
            self._deliver(request.process, _fail_with, request.answer, refusal)
            return
        self.handling = request
        try:
            request.reply = self.apply(request.process, request.name, request.args)
        except RowUnreadable as error:
            self.on_refusal(request)
            self._deliver(request.process, _fail_with, request.answer, error)
            return
        finally:
            self.handling = None
        request.step = self.steps
        unheard = self._took_the_reply_along() or request.process.name in self.deaf
        if not unheard and not self._lost(request.process, self.weather.lose_reply):
            self._deliver(request.process, self._hand_over, request)

    def _took_the_reply_along(self) -> bool:
        """It went down right after the commit."""
        return not self.store_is_up and self.chance.random() < 0.3

    def _deliver(self, process: Process, callback: Callable[..., None], *args: Any) -> None:
        def arrive() -> None:
            process.call_soon(callback, *args)

        self.world.at(self.world.now + self._delay(), arrive)

    def _hand_over(self, request: Request) -> None:
        if not request.answer.done():
            self.on_delivery(request)
            request.answer.set_result(request.reply)

    def _lost(self, process: Process, probability: float) -> bool:
        return process.name in self.cut_off or self.chance.random() < probability

    def _delay(self) -> float:
        if self.weather.slow and self.chance.random() < self.weather.slow:
            return self.chance.uniform(0.0, self.weather.latest)
        return self.chance.uniform(0.0005, 0.004)


def remote_store(network: Network, process: Process) -> Store:
    """The store as one process sees it."""

    def method(name: str) -> Callable[..., Any]:
        async def call(self: object, *args: Any) -> Any:
            return await network.call(process, name, args)

        return call

    notices = type(
        "RemoteNotices", (Notices,), {name: method(name) for name in Notices.__abstractmethods__}
    )()

    async def nothing(self: Store) -> None:
        return None

    async def wait(self: Store, seconds: float) -> bool:
        return await network.wait(process, seconds)

    methods: dict[str, Any] = {name: method(name) for name in sorted(Store.__abstractmethods__)}

    async def evidence(self: Store, replicas: Sequence[str]) -> Evidence:
        if network.evidence_every is None:
            return Evidence()
        return Evidence(dead=frozenset(name for name in replicas if network.is_dead(name)))

    methods |= {"open": nothing, "close": nothing, "wait": wait, "evidence": evidence, "notices": notices}
    methods["evidence_every"] = network.evidence_every
    remote: Store = type("RemoteStore", (Store,), methods)()
    return remote


def _resolve(future: asyncio.Future[Any], answer: Any) -> None:
    if not future.done():
        future.set_result(answer)


def _fail(future: asyncio.Future[Any], text: str) -> None:
    _fail_with(future, StoreUnavailable(text))


def _fail_with(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
