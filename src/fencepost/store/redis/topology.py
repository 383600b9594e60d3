"""Where the primary is: asked of Sentinels, or of the nodes of a cluster.

A failover moves the primary, and what the old one acknowledged last may be lost. Each failover has an *epoch*, a number
that grows. Of several answers the one with the highest epoch counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from redis.crc import key_slot

from fencepost.errors import ConfigurationError, FencepostError, StoreUnavailable
from fencepost.store.redis.address import Address, Host

STRAGGLERS = 0.1
"""Seconds to wait for more answers when there are enough."""

Commands = Sequence[Sequence[str]]
Ask = Callable[[Host, Commands], Awaitable[list[Any]]]
"""These commands of this host, over a connection that is closed afterwards."""


@dataclass(frozen=True, slots=True)
class Primary:
    host: str
    port: int
    epoch: int
    """Of the failover that made it the primary."""


class Topology(Protocol):
    async def primary(self) -> Primary: ...


def topology_of(address: Address, prefix: str, ask: Ask) -> Topology | None:
    """None: the server is where the URL says."""
    if address.kind == "sentinel":
        return Sentinels(address, ask)
    if address.kind == "cluster":
        return ClusterNodes(address, key_slot(prefix.strip("{}").encode()), ask)
    return None


class Sentinels:
    """At least half of those in the URL must answer. A part of the network that is cut off from most Sentinels may
    still hold a server that believes it is the primary, after the others have promoted another."""

    def __init__(self, address: Address, ask: Ask) -> None:
        self._hosts, self._service, self._ask = address.hosts, address.service, ask

    async def primary(self) -> Primary:
        needed = (len(self._hosts) + 1) // 2
        answers, errors = await _answers([self._one(host) for host in self._hosts], needed)
        found: list[Primary] = [each for each in answers if each is not None]
        if answers and not found:
            raise ConfigurationError(
                f"the Sentinels watch no service called {self._service!r}; check the URL: "
                "redis+sentinel://host:26379/service/0"
            )
        if len(answers) < needed:
            refused = next((error for error in errors if isinstance(error, ConfigurationError)), None)
            raise refused or StoreUnavailable(
                f"{len(answers)} of {len(self._hosts)} Sentinels answer, too few to know the primary: {errors[0]}"
            )
        return max(found, key=lambda each: each.epoch)

    async def _one(self, host: Host) -> Primary | None:
        """None: it does not know the service."""
        # During a failover only the first of these names the server that is promoted.
        commands = (
            ("SENTINEL", "get-master-addr-by-name", self._service),
            ("SENTINEL", "MASTER", self._service),
        )
        where, reply = await self._ask(host, commands)
        if where is None:
            return None
        if isinstance(reply, Exception):
            raise reply
        fields = reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))
        return Primary(where[0], int(where[1]), int(fields["config-epoch"]))


class ClusterNodes:
    """Any node that answers will do: those that are cut off from most of the cluster refuse to work by themselves."""

    COMMANDS = (("CLUSTER", "SLOTS"), ("CLUSTER", "NODES"))

    def __init__(self, address: Address, slot: int, ask: Ask) -> None:
        self._hosts, self._slot, self._ask = address.hosts, slot, ask
        self._known: tuple[Host, ...] = ()
        """Nodes that others have named: those of the URL may be replaced one by one."""

    async def primary(self) -> Primary:
        found, errors = await _answers([self._one(host) for host in self._hosts], 1)
        if not found and self._known:
            found, errors = await _answers([self._one(host) for host in self._known], 1)
        if not found:
            raise errors[0]
        best: Primary = max(found, key=lambda each: each.epoch)
        return best

    async def _one(self, host: Host) -> Primary:
        slots, nodes = await self._ask(host, self.COMMANDS)
        for reply in (slots, nodes):
            if isinstance(reply, Exception):
                raise reply
        epochs = {words[0]: int(words[6]) for line in nodes.splitlines() if len(words := line.split()) > 7}
        shards = list(_shards(slots, host))
        self._known = tuple(where for _, _, owners in shards for where, _ in owners) or self._known
        for first, last, owners in shards:
            if first <= self._slot <= last and owners:
                (name, port), id = owners[0]
                return Primary(name, port, epochs.get(id, 0))
        raise StoreUnavailable(f"slot {self._slot}, which holds this namespace, has no node in the cluster")


def _shards(slots: Any, asked: Host) -> Iterator[tuple[int, int, list[tuple[Host, str]]]]:
    """First and last slot, and the nodes that have them, the primary first."""
    for first, last, *nodes in slots:
        owners = []
        for node in nodes:
            name = node[0] if node[0] not in ("", None, "?") else asked[0]  # it does not know its own address
            owners.append(((str(name), int(node[1])), str(node[2])))
        yield int(first), int(last), owners


async def _answers(questions: Sequence[Any], needed: int) -> tuple[list[Any], list[FencepostError]]:
    """So many answers, and those that come at the same time; and what went wrong with others."""
    pending = {asyncio.ensure_future(question) for question in questions}
    answers: list[Any] = []
    errors: list[FencepostError] = []
    try:
        while pending:
            patience = None if len(answers) < needed else STRAGGLERS
            done, pending = await asyncio.wait(pending, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            for task in done:
                error = task.exception()
                if error is None:
                    answers.append(task.result())
                elif isinstance(error, FencepostError):
                    errors.append(error)
                else:
                    raise error
    finally:
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
    return answers, errors
