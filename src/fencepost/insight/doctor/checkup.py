"""The examination of a running service: the checks of `diagnose`, made on the read side with the store already open."""

from __future__ import annotations

from pathlib import Path

from fencepost.clock import Clock
from fencepost.errors import FencepostError
from fencepost.insight.board import Reading
from fencepost.insight.doctor.clocks import clocks, distance, trips
from fencepost.insight.doctor.cluster import cluster
from fencepost.insight.doctor.configuration import configuration
from fencepost.insight.doctor.diagnosis import Diagnosis
from fencepost.insight.doctor.finding import problem
from fencepost.insight.doctor.jobs import abandoned, jobs, undecided
from fencepost.insight.doctor.notifications import leader_of, notifications
from fencepost.insight.doctor.opening import preflight
from fencepost.insight.doctor.subject import Subject
from fencepost.insight.doctor.unreadable import unreadable
from fencepost.insight.doctor.zones import zones
from fencepost.insight.visible import Sees
from fencepost.store.base import Store
from fencepost.store.outbox import OutboxQuery


async def checkup(
    scheduler: Subject,
    store: Store,
    reading: Reading,
    clock: Clock,
    sees: Sees | None = None,
    *,
    with_settings: bool = False,
) -> Diagnosis:
    """`reading`: as far as the caller sees it. `with_settings`: names of files and variables are shown."""
    found = Diagnosis(scheduler.store_name)
    if with_settings:
        found.add("configuration", configuration(scheduler, Path()))
    try:
        found.add("store", (await preflight(scheduler)).findings)
    except FencepostError as error:
        found.add("store", [problem(str(error), "see that it is up and that the URL is right")])
    made = await trips(store, clock)
    found.add("store", distance(made))
    found.add("clocks", clocks(made))
    records = [entry.record for entry in reading.entries if entry.record is not None]
    status = reading.status(scheduler.store_name)
    found.add("zones", zones(records))
    found.add("cluster", cluster(status))
    if reading.unreadable:
        found.add("unreadable", unreadable(reading.unreadable))
    due, lonely = (
        [fire for fire in fires if sees is None or sees(fire.job_id)]
        for fires in (await undecided(store, reading.now), await abandoned(store))
    )
    found.add("jobs", jobs(status, records, due, lonely, reading.now))
    if sees is None:
        outbox = await store.notices.outbox(OutboxQuery())
        found.add("notifications", notifications(outbox, leader_of(status), reading.now))
    return found
