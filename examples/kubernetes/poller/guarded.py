"""The same polls for those who have APScheduler: `python -m poller.guarded`, as often as you like.

Jobs, triggers and the `BlockingScheduler` are APScheduler's. `guard` elects a leader, lets it alone run them, and
claims each fire in Valkey before it starts.
"""

from __future__ import annotations

import logging
import signal
import sys

import httpx2
import stamina
from apscheduler.schedulers.blocking import BlockingScheduler
from redis import Redis

from fencepost import current_fire
from fencepost.apscheduler import guard
from poller.readings import redis_url, writing
from poller.settings import PollerSettings

settings = PollerSettings.load()
devices = httpx2.Client(base_url=settings.devices_url, timeout=5.0, trust_env=False)
valkey = Redis.from_url(redis_url(settings.valkey))

scheduler = BlockingScheduler(timezone="UTC", job_defaults={"misfire_grace_time": 30})
guard(scheduler, f"{settings.valkey}?prefix=scheduler", execute_on="leader")


@stamina.retry(on=(httpx2.HTTPError, ValueError), attempts=5, wait_initial=settings.retry_first, wait_max=60)
def poll(device: int) -> None:
    fire = current_fire()
    fire.check()  # before each attempt: another replica may have taken over while this one waited
    asker = {"X-Fire": fire.key, "X-Token": str(fire.token), "X-Replica": fire.replica}
    answer = devices.get(f"/devices/{device}", headers=asker)
    answer.raise_for_status()
    reading = {"value": float(answer.json()["value"]), "fire": fire.key, "replica": fire.replica}
    valkey.eval(*writing(device, reading, fire.token))  # nothing, if a higher token has been there


for number in range(1, settings.devices + 1):
    # The grid has an anchor, so that it is the same in every replica.
    scheduler.add_job(
        poll,
        "interval",
        seconds=settings.interval,
        start_date="2026-01-01",
        args=[number],
        id=f"poll-{number}",
        max_instances=1,
        coalesce=True,
    )


def main() -> None:
    logging.basicConfig(format="%(asctime)s %(levelname)-7s %(message)s", level=logging.INFO)
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # else a line for each poll that went well
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        scheduler.start()  # until SIGTERM
    finally:
        if scheduler.running:
            scheduler.shutdown()  # what runs ends first, and leadership is handed over


if __name__ == "__main__":
    main()
