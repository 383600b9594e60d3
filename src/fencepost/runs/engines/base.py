"""The interface of an engine, and the values that cross it. See docs/engines.md for what an engine must keep.

An engine may deliver an order twice, late, or never: the start gate (`fencepost.engine_worker`) lets each order's body
start at most once. An engine must therefore only do what it is asked, and say what it knows.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, NewType, Protocol

from fencepost.errors import ConfigurationError
from fencepost.model import Json
from fencepost.model.values import clean_json

Ref = NewType("Ref", str)
"""The name of an order in its engine: derived from fire and token, so that every replica finds the
same run by it."""

ORDER_LIMIT = 262_144
"""Bytes of an order's JSON."""


def ref_of(namespace: str, key: str, token: int) -> Ref:
    """At most 63 characters, lower case letters, digits and dashes: fit for a Kubernetes name, a Celery or Dask id."""
    slug = re.sub(r"[^a-z0-9]+", "-", re.split("[@!]", key)[0].lower()).strip("-")[:28].strip("-")
    digest = hashlib.sha256(f"{namespace}\n{key}\n{token}".encode()).hexdigest()[:24]
    return Ref("-".join(part for part in ("fp", slug, digest) if part))


@dataclass(frozen=True)
class Order:
    """What a worker is sent: which fire, under which token, what to call. It holds no secrets: where the store or the
    service is, and the token for it, a worker knows from its own environment."""

    ref: Ref
    engine: str
    namespace: str
    key: str
    token: int
    job_id: str
    target: str
    """The task's name."""
    due_at: str
    """ISO 8601, in UTC."""
    args: Mapping[str, Json] = field(default_factory=dict)
    attempt: int = 1
    timeout: float | None = None
    """Seconds the body may take."""
    heartbeat: float = 10.0
    ttl: float = 30.0
    """Seconds for which a heartbeat of the worker holds the run."""
    options: Mapping[str, Json] = field(default_factory=dict)
    """The job's `engine={…}`."""
    trace: Mapping[str, str] = field(default_factory=dict)
    """W3C trace context."""

    def to_json(self) -> dict[str, Json]:
        return asdict(self)

    @property
    def text(self) -> str:
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, value: Any) -> Order:
        """From outside: checked and bounded. A worker may be older than the replica that sent it, so what it does not
        know is ignored."""
        if isinstance(value, str | bytes):
            if len(value) > ORDER_LIMIT:
                raise ConfigurationError(f"an order of more than {ORDER_LIMIT} bytes is refused")
            value = json.loads(value)
        if not isinstance(value, Mapping):
            raise ConfigurationError("an order must be a JSON object")
        known = {each.name for each in fields(cls)}
        given = {name: each for name, each in value.items() if name in known}
        for name, kind in _KINDS.items():
            if name in given and not isinstance(given[name], kind):
                raise ConfigurationError(f"order: {name} has the wrong type")
        for name in ("args", "options", "trace"):
            given[name] = clean_json(given.get(name) or {}, f"{name} of an order", ORDER_LIMIT)
        try:
            order = cls(**given)
        except TypeError as error:
            raise ConfigurationError(f"order: {error}") from None
        if order.ref != ref_of(order.namespace, order.key, order.token):
            raise ConfigurationError(f"order {order.ref}: its ref does not belong to {order.key}")
        return order


_KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("ref", "engine", "namespace", "key", "job_id", "target", "due_at"), str),
    **dict.fromkeys(("token", "attempt"), int),
    **dict.fromkeys(("heartbeat", "ttl"), (int, float)),
    **dict.fromkeys(("args", "options", "trace"), Mapping),
    "timeout": (int, float, type(None)),
}


@dataclass(frozen=True, slots=True)
class Sighting:
    """What an engine says of an order.

    `waiting`: it will start. `running`: it has started. `ended`: it is over, with an outcome: only if a worker ran it
    and was not refused by the start gate. `gone`: the engine knows for certain that it has no such order, or that what
    ran it is no more. `unsure`: it cannot say; what is not known is never `gone`.
    """

    kind: Literal["waiting", "running", "ended", "gone", "unsure"]
    succeeded: bool = False
    error: str | None = None
    """Why it failed, as the engine has it: exit code, reason, traceback."""
    output: str | None = None
    """The end of its log."""


WAITING = Sighting("waiting")
RUNNING = Sighting("running")
GONE = Sighting("gone")
UNSURE = Sighting("unsure")


def ended(succeeded: bool, error: str | None = None, output: str | None = None) -> Sighting:
    return Sighting("ended", succeeded, error, output)


class Engine(Protocol):
    """Where orders are carried out. All methods are called on the replica's control loop: they must not block it. Any
    exception means "unknown": it may or may not have happened. Each is called again after an error. If there is an
    `async def close(self)` as well, a replica that stops calls it; another may use the engine afterwards."""

    async def submit(self, order: Order) -> None:
        """The same ref twice is once, or harmless. Retries of the engine's own are off."""

    async def poll(self, refs: Sequence[Ref]) -> Mapping[Ref, Sighting]:
        """What becomes of these, asked for by any replica, not only by the one that sent them. A ref that is left out
        counts as `unsure`."""

    async def stop(self, ref: Ref) -> None:
        """End it, by force if need be. Unknown refs are ignored."""

    async def forget(self, ref: Ref) -> None:
        """Its outcome is on record: what is kept of it may go. Unknown refs are ignored."""
