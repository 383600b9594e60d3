"""Functions that run in processes of their own and return something."""

from __future__ import annotations

import asyncio


def rows() -> dict[str, int]:
    return {"rows": 3}


def strange() -> object:
    return object()


async def later() -> str:
    await asyncio.sleep(0)
    return "later"
