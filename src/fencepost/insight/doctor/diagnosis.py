"""The examination: one section after the other, up to the first error of the store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from fencepost.clock import Clock
from fencepost.errors import FencepostError, NothingStored, StoreUnavailable
from fencepost.insight.doctor.clocks import clocks, distance, trips
from fencepost.insight.doctor.cluster import cluster, is_live
from fencepost.insight.doctor.configuration import configuration
from fencepost.insight.doctor.finding import Finding, Level, problem, warning
from fencepost.insight.doctor.jobs import abandoned, jobs, undecided
from fencepost.insight.doctor.notifications import leader_of, notifications
from fencepost.insight.doctor.opening import preflight
from fencepost.insight.doctor.subject import Subject
from fencepost.insight.doctor.target import compared, declared
from fencepost.insight.doctor.unreadable import unreadable
from fencepost.insight.doctor.zones import zones
from fencepost.insight.existence import WHERE_ELSE, how_to_start
from fencepost.insight.views.overview import read_overview
from fencepost.store.base import Store
from fencepost.store.outbox import OutboxQuery


@dataclass
class Diagnosis:
    store: str
    sections: dict[str, list[Finding]] = field(default_factory=dict)
    """In the order of the examination."""
    ended_by: FencepostError | None = None
    """The error that kept the doctor from reading the store."""

    def add(self, section: str, findings: Iterable[Finding]) -> None:
        """A section without a finding is left out."""
        if some := list(findings):
            self.sections.setdefault(section, []).extend(some)

    @property
    def problems(self) -> int:
        return self._count(Level.PROBLEM)

    @property
    def warnings(self) -> int:
        return self._count(Level.WARNING)

    @property
    def exit_code(self) -> int:
        if self.ended_by is not None:
            return self.ended_by.exit_code
        return 1 if self.problems else 0

    def _count(self, level: Level) -> int:
        return sum(finding.level is level for findings in self.sections.values() for finding in findings)


async def diagnose(scheduler: Subject, target: str | None, clock: Clock) -> Diagnosis:
    """`scheduler`: the target's, or one without jobs. `clock`: this host's."""
    found = Diagnosis(scheduler.store_name)
    found.add("configuration", configuration(scheduler, _directory(target)))
    if target is not None:
        found.add("target", declared(target, scheduler))
    try:
        before = await preflight(scheduler)
        found.add("store", before.findings)
        if before.nothing is not None:
            _say_nothing_is_there(before.nothing, target, found)
        elif before.may_open:
            await _examine_store(scheduler, target, clock, found)
    except FencepostError as error:
        found.add("store", [problem(str(error), _remedy(error))])
        found.ended_by = error
    return found


def _say_nothing_is_there(nothing: NothingStored, target: str | None, found: Diagnosis) -> None:
    """With a target this is a warning: its code may never have run. Without one the store's name must be wrong."""
    if target is not None:
        remedy = (
            f"start it: `{how_to_start(target)}`; if it has been started, correct the URL or the namespace"
        )
        found.add("store", [warning(str(nothing), remedy)])
    else:
        found.add("store", [problem(str(nothing), WHERE_ELSE)])
        found.ended_by = nothing


async def _examine_store(scheduler: Subject, target: str | None, clock: Clock, found: Diagnosis) -> None:
    store = scheduler.store
    try:
        await store.open()
        made = await trips(store, clock)
        found.add("store", distance(made))
        found.add("clocks", clocks(made))
        await _examine_work(store, scheduler, target, found)
    finally:
        await store.close()


async def _examine_work(store: Store, scheduler: Subject, target: str | None, found: Diagnosis) -> None:
    records = await store.jobs()
    status, now = await read_overview(store, scheduler.store_name)
    found.add("zones", zones(records))
    found.add("cluster", cluster(status))
    if store.unreadable:
        found.add("unreadable", unreadable(store.unreadable.rows))
    due, lonely = await undecided(store, now), await abandoned(store)
    found.add("jobs", jobs(status, records, due, lonely, now))
    found.add(
        "notifications", notifications(await store.notices.outbox(OutboxQuery()), leader_of(status), now)
    )
    if target is not None:
        up = {replica["replica"] for replica in status["replicas"] if is_live(replica)}
        live = [replica for replica in (await store.roster()).replicas if replica.id in up]
        found.add("target", compared(target, scheduler, records, live))


def _directory(target: str | None) -> Path:
    """The folder of the settings file: that of the job file, if the target is one."""
    return Path(target).parent if target is not None and target.endswith(".toml") else Path()


def _remedy(error: FencepostError) -> str:
    if isinstance(error, StoreUnavailable):
        return "see that it is up and that the URL is right; replicas try again and run nothing meanwhile"
    return "do what the message says; replicas do not start like this"
