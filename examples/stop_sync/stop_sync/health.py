"""Does the service of this host take part? `python -m stop_sync.health` ends with 0 if it does, with 1 if not.

It asks the store, so it sees what everybody sees: a service that hangs, or has lost the store, is overdue there.
"""

from __future__ import annotations

import asyncio
import os
import sys

from fencepost import FencepostError
from fencepost.replica.replica import Identity
from fencepost.store.urls import store_from_url
from stop_sync.settings import Settings


def main() -> int:
    here = Identity.here().host
    try:
        found = asyncio.run(hosts(Settings.of(os.environ).store_url))
    except FencepostError as error:
        print(f"stop_sync: {error}", file=sys.stderr)
        return 1
    print(f"{here} {'takes' if here in found else 'does not take'} part")
    return 0 if here in found else 1


async def hosts(url: str) -> set[str]:
    """Of those who take part and are not overdue."""
    store = store_from_url(url)
    await store.open()
    try:
        roster = await store.roster()
    finally:
        await store.close()
    return {replica.host for replica in roster.replicas if replica.id not in roster.overdue}


if __name__ == "__main__":
    sys.exit(main())
