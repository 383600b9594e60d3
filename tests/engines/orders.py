"""Orders, as replicas make them."""

from __future__ import annotations

import itertools
from typing import Any

from fencepost.runs.engines import Order, ref_of

_numbers = itertools.count(1)


def an_order(engine: str, **given: Any) -> Order:
    key, token = f"report@2026-11-15T12:00:{next(_numbers):02}.000000Z", 1
    found = {
        "ref": ref_of("default", key, token),
        "engine": engine,
        "namespace": "default",
        "key": key,
        "token": token,
        "job_id": "report",
        "target": "report",
        "due_at": "2026-11-15T12:00:00Z",
    }
    return Order(**{**found, **given})
