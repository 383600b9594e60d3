"""One job per device. Whichever replica runs it asks the device and writes down what it said."""

from __future__ import annotations

import logging

import httpx2

from fencepost import Fire, Retry, Scheduler, every
from poller.readings import Readings
from poller.settings import PollerSettings

log = logging.getLogger("poller")

settings = PollerSettings.load()
readings = Readings(settings.valkey)
devices = httpx2.AsyncClient(base_url=settings.devices_url, timeout=5.0, trust_env=False)

# With this prefix the lease is `scheduler:leader`, and a run is `scheduler:job:<id>:<scheduled time>` while it lives.
scheduler = Scheduler(store=f"{settings.valkey}?prefix=scheduler")


async def poll(device: int, fire: Fire) -> None:
    """A device learns who asks, and for which fire: it is a witness that nobody asked twice."""
    asker = {"X-Fire": fire.key, "X-Token": str(fire.token), "X-Replica": fire.replica}
    answer = await devices.get(f"/devices/{device}", headers=asker)
    answer.raise_for_status()
    reading = {"value": float(answer.json()["value"]), "fire": fire.key, "replica": fire.replica}
    if not await readings.write(device, reading, fire.token):
        log.warning("%s came too late: somebody has polled device %d since", fire.key, device)


for number in range(1, settings.devices + 1):
    scheduler.job(
        every(seconds=settings.interval),
        id=f"poll-{number}",
        args={"device": number},
        # How long a poll may take is said here, for each job. How soon a dead replica's polls are given up is one value
        # for all, FENCEPOST_RUN_TTL: the lock of a run is renewed while it lives, so it need not cover its duration.
        timeout=30,
        # Half of each wait is left to chance: devices that went away together must not come back to one big crowd.
        retry=Retry(
            attempts=5, first=settings.retry_first, cap=60, jitter=0.5, on=(httpx2.HTTPError, ValueError)
        ),
    )(poll)
