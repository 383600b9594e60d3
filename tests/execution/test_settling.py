"""An update that cannot be written stops one run, and no other."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from functools import partial

import pytest

from fencepost import Retry, every
from fencepost.errors import NotStorable
from fencepost.model import Job, Overlap, Reason, State, manual_key
from fencepost.replica.settler import MOST_FAILURES
from fencepost.store.base import NewFire, Settle
from fencepost.store.memory import MemoryStore
from fencepost.store.unreadable import RowUnreadable
from fencepost.testing.virtual import WorldClock
from tests.execution.places import PLACES, store_of, url_of
from tests.execution.worlds import Replicas
from tests.unit.apps.cluster import Cluster

WRITING = [place for place in PLACES if place != "memory"]
"""Stores that write values down. The memory store keeps whatever it is given."""


@pytest.fixture(params=WRITING)
def replicas(request, tmp_path):
    url = url_of(request.param, tmp_path, request)
    made = Replicas(partial(store_of, request.param, url, tmp_path))
    yield made
    made.close()


def test_an_outcome_that_cannot_be_written_fails_its_run_and_no_other(replicas, caplog):
    """Values are checked where a body hands them over (`values.py`). These come in behind that."""
    refused = []

    def declare(scheduler):
        @scheduler.job(every(seconds=1), id="good")
        async def good(fire):
            fire.report(done=1)

        @scheduler.job(every(seconds=1), id="kept")
        async def kept(fire):
            fire._link.keep(object())

        @scheduler.job(every(seconds=1), id="reported", overlap="skip")
        async def reported(fire):
            fire._link.report({"done": object()})

        @scheduler.job(every(seconds=3), id="saved", retry=Retry(attempts=1))
        async def saved(fire):
            try:
                await asyncio.wrap_future(fire._link.save(object()))
            except NotStorable as error:
                refused.append(str(error))
                raise

    member = replicas.start(declare)
    replicas.advance(10)
    assert [fire.state for fire in replicas.fires("good")][:-1] == [State.SUCCEEDED] * 9
    assert [fire.state for fire in replicas.fires("reported")][:-1] == [State.SUCCEEDED] * 9, (
        "without its report"
    )
    for fire in replicas.fires("kept")[:-1]:
        assert (fire.state, fire.reason) == (State.FAILED, Reason.NOT_RECORDED)
        assert "the run succeeded, but the store cannot keep its outcome: TypeError: " in fire.error
    assert len([event for event in member.told("failed") if event.job_id == "kept"]) >= 9
    assert {fire.reason for fire in replicas.fires("saved")} == {Reason.RAISED}
    assert "the store cannot keep this checkpoint (TypeError" in refused[0]
    assert not member.replica.degraded_loops
    assert not member.told("loop.degraded")
    assert caplog.text.count("a report cannot be written and is dropped: reported@") == 2, (
        "the first, and the 10th"
    )
    member.stop()


def test_what_a_run_keeps_fails_with_it_where_its_job_cannot_be_read(tmp_path, caplog):
    """Neither is dropped in silence: what it keeps with its outcome, and what it asks for of the runs before."""
    path = tmp_path / "fencepost.db"
    replicas = Replicas(partial(store_of, "sqlite", "", tmp_path))
    refused = []

    def declare(scheduler):
        @scheduler.job(every(seconds=1), id="good")
        async def good(fire):
            pass

        @scheduler.job(every(seconds=1), id="bad")
        async def bad(fire):
            fire.keep({"etag": "a"})
            with closing(sqlite3.connect(path, isolation_level=None)) as db:
                db.execute("update fencepost_jobs set definition = '{' where id = 'bad'")
            try:
                await fire.kept()
            except RowUnreadable as error:
                refused.append(str(error))

    member = replicas.start(declare)
    replicas.advance(5)
    [fire] = [fire for fire in replicas.fires("bad") if fire.attempt]
    assert (fire.state, fire.reason) == (State.FAILED, Reason.NOT_RECORDED)
    assert "the run succeeded, but the store cannot keep its outcome" in fire.error
    assert f"what {fire.key} keeps for later runs cannot be stored" in fire.error
    assert "jobs rm bad" in fire.error
    assert f"what {fire.key} keeps" in caplog.text
    assert len(refused) == 1
    assert len([fire for fire in replicas.fires("good") if fire.state is State.SUCCEEDED]) >= 4
    assert not member.told("loop.degraded")
    member.stop()
    replicas.close()


class Refusing(MemoryStore):
    """Cannot write any update of some fires, or only some updates of them."""

    def __init__(self, clock) -> None:
        super().__init__(clock)
        self.bad = lambda update: False
        self.calls = 0
        self.refused = 0

    async def update_claims(self, replica, updates):
        self.calls += 1
        if any(self.bad(update) for update in updates):
            self.refused += 1
            raise ValueError("cannot be written")
        return await super().update_claims(replica, updates)


def test_one_of_many_is_found_with_few_writes():
    cluster, store = refusing(slots=400)
    member = cluster.add(Job("job", "body", overlap=Overlap("allow", 400)))
    cluster.run(3)
    store.bad = lambda update: update.key == "job!n37" and getattr(update, "state", None) is State.SUCCEEDED
    for number in range(90):
        cluster.ask("add_fire", NewFire(manual_key("job", f"n{number}"), "job"))
    before = store.calls
    cluster.run(30)
    assert not [fire for fire in cluster.fires() if not fire.state.final]
    [bad] = [fire for fire in cluster.fires() if fire.state is not State.SUCCEEDED]
    assert (bad.key, bad.reason) == ("job!n37", Reason.NOT_RECORDED)
    assert store.refused <= 10
    assert store.calls - before < 100
    assert not member.told("loop.degraded")


def test_what_can_be_written_in_no_form_waits_aside_and_makes_the_replica_unready(caplog):
    cluster, store = refusing()
    member = cluster.add(Job("job", "body", every(seconds=1)), Job("stuck", "body"))
    cluster.run(3)
    store.bad = lambda update: update.key.startswith("stuck")
    cluster.ask("add_fire", NewFire(manual_key("stuck", "one"), "stuck"))
    cluster.run(70)
    assert 5 <= store.refused <= 50, "it is not tried in a hot loop"
    assert [fire.state for fire in cluster.fires("job")][:-1] == [State.SUCCEEDED] * (
        len(cluster.fires("job")) - 1
    )
    assert len(cluster.fires("job")) >= 70
    assert member.replica.degraded_loops == {"settler": "ValueError"}
    assert len(member.told("loop.degraded")) == 1
    assert caplog.text.count("Traceback") == 1
    assert "stuck!one cannot be settled" in caplog.text
    store.bad = lambda update: False
    cluster.run(7)  # a TTL and a bit
    assert member.replica.degraded_loops == {}
    assert len(member.told("loop.recovered")) == 1
    [fire] = cluster.fires("stuck")
    assert fire.state is State.SUCCEEDED, "the outcome itself, now that it can be written"
    assert not member.replica.runs.get("stuck!one")


def test_an_error_that_does_not_come_back_costs_nothing():
    cluster, store = refusing()
    cluster.add(Job("job", "body"))
    cluster.run(3)
    failures = iter([True])
    store.bad = lambda update: isinstance(update, Settle) and next(failures, False)
    cluster.ask("add_fire", NewFire(manual_key("job", "one"), "job"))
    cluster.run(5)
    [fire] = cluster.fires("job")
    assert (store.refused, fire.state) == (1, State.SUCCEEDED)


def test_a_store_that_writes_nothing_at_all_is_not_asked_for_each_update_again_and_again():
    cluster, store = refusing(slots=400)
    member = cluster.add(Job("job", "body", overlap=Overlap("allow", 400)))
    cluster.run(3)
    store.bad = lambda update: True
    for number in range(90):
        cluster.ask("add_fire", NewFire(manual_key("job", f"n{number}"), "job"))
    cluster.run(10)
    assert store.refused <= 12 * MOST_FAILURES
    assert member.replica.degraded_loops == {"settler": "ValueError"}
    store.bad = lambda update: False
    cluster.run(120)
    assert {fire.state for fire in cluster.fires()} == {State.SUCCEEDED}
    assert member.replica.degraded_loops == {}


def refusing(**settings):
    cluster = Cluster(**settings)
    store = cluster.memory = Refusing(WorldClock(cluster.world))
    return cluster, store
