"""Whatever user code says goes into every store, comes back, and can be sent as JSON."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import json
from decimal import Decimal

import numpy
import pytest

from fencepost import Scheduler, every
from fencepost.cli import outcome
from fencepost.insight.views.shapes import definition_shape, event_shape, pause_shape, whole_fire_shape
from fencepost.store.base import FireQuery, NewFire
from fencepost.store.urls import store_from_url
from tests.execution.places import PLACES, url_of
from tests.web.sample import sample
from tests.web.serving import eventually, service

pytestmark = pytest.mark.timeout(180)

HALF = "caf\udce9"
WHOLE = "caf\ufffd"
VALUES = {
    "three": numpy.int64(3),
    "half": Decimal("0.5"),
    "nan": float("nan"),
    HALF: HALF,
    "tuple": (1, numpy.float32(2)),
    "big": 2**80,
}
STORED = {"three": 3, "half": 0.5, "nan": None, WHOLE: WHOLE, "tuple": [1, 2.0], "big": 2**80}


@pytest.mark.parametrize("place", PLACES)
async def test_what_a_run_says_comes_back_from_every_store(place, tmp_path, request):
    scheduler = Scheduler(store=url_of(place, tmp_path, request))
    args, kept = [], []

    @scheduler.task(id="says")
    async def says(fire, values, name="x"):
        args.append((values, name))
        values["three"] = 4
        kept.append(await fire.kept())
        fire.report(done=numpy.int64(3), total=Decimal(100), message=f"{HALF}\0", values=VALUES)
        mine = dict(VALUES)
        await fire.save(mine, done=numpy.float64("inf"), total=numpy.uint8(7), message=HALF)
        mine["three"] = 5
        fire.keep(VALUES)

    @scheduler.task(id="fails")
    async def fails(fire):
        fire.report(done=1)
        raise ValueError(f"{HALF}\0")

    @scheduler.task(id="wrong")
    async def wrong(fire):
        fire.report(done=1, seen={1, 2})

    async with scheduler:
        handles = [await scheduler.trigger(says, args={"values": VALUES, "name": HALF}) for _ in range(2)]
        for handle in handles:
            assert (await handle.wait(60)).state == "succeeded"
        fire = await handle.record()
        failed = await (await scheduler.trigger(fails)).wait(60)
        refused = await (await scheduler.trigger(wrong)).wait(60)
        await scheduler.pause(says, reason=f"{HALF}\0")
        [record] = await scheduler.ask(scheduler.lifecycle.with_store(lambda store: store.jobs(["says"])))
        history = await scheduler.ask(scheduler.lifecycle.with_store(lambda store: store.history("says")))
    assert args == [({**STORED, "three": 4}, WHOLE)] * 2, "changed by the body, each in a copy of its own"
    assert kept == [None, STORED]
    assert fire.args == {"values": STORED, "name": WHOLE}
    assert fire.checkpoint == record.kept == STORED
    assert fire.progress == {"done": None, "total": 7, "message": WHOLE, "values": STORED}
    assert failed.error.endswith(f"ValueError: {WHOLE}\n")
    assert (refused.state, "cannot be stored as JSON" in refused.error) == ("failed", True)
    assert record.pauses[-1].note == f"{WHOLE}\ufffd"
    for shape in (
        *(whole_fire_shape(each) for each in (fire, failed, refused)),
        definition_shape(record),
        pause_shape(record.pauses[-1]),
        *(event_shape(each) for each in history),
    ):
        sent = json.dumps(shape, allow_nan=False, ensure_ascii=False).encode()
        assert json.loads(sent) == shape


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("number", [numpy.int64(3), Decimal(3)], ids=["numpy", "decimal"])
async def test_a_number_of_another_library_stops_nothing(place, number, tmp_path, request):
    """It made the settler fail on every batch, for ever: nothing of this replica was settled."""
    scheduler = Scheduler(store=url_of(place, tmp_path, request))

    @scheduler.task(id="counts")
    async def counts(fire):
        fire.report(done=number, total=100)

    async with scheduler:
        fire = await (await scheduler.trigger(counts)).wait(60)
    assert (fire.state, fire.progress["done"]) == ("succeeded", 3)


@pytest.mark.parametrize("place", PLACES)
async def test_arguments_of_jobs_are_stored_as_they_will_be_read(place, tmp_path, request):
    url = url_of(place, tmp_path, request)
    values = dict(VALUES)
    scheduler = Scheduler(store=url)

    @scheduler.task(id="work")
    async def work(**given): ...

    async with scheduler:
        await scheduler.add(work, every(hours=1), id="added", args=values)
        values["three"] = 5
        await scheduler.add(work, every(hours=1), id="added", args=VALUES)  # equal: not refused
        for wrong in ({"x": {1, 2}}, {"x": object()}):
            with pytest.raises(ValueError, match="arguments of .* cannot be stored as JSON .*pass numbers"):
                await scheduler.add(work, every(hours=1), id="wrong", args=wrong)
            with pytest.raises(ValueError, match="arguments of .* cannot be stored as JSON .*pass numbers"):
                await scheduler.trigger("added", args=wrong)
        [record] = await scheduler.ask(scheduler.lifecycle.with_store(lambda store: store.jobs(["added"])))
    assert record.job.args == STORED


def test_bytes_of_a_command_line_that_are_no_utf_8_can_be_shown_by_the_api(tmp_path):
    """As `fencepost trigger --arg x=$'caf\\xe9'` hands them over: the job is not known to the command."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    with service(sample(url)) as client:
        assert outcome(["trigger", "report", "--arg", f"region={HALF}", "--store", url]) == 0
        assert outcome(["pause", "report", "--reason", HALF, "--store", url]) == 0
        answer = client.get("/api/v1/fires")
        assert (answer.status_code, answer.json()["items"][0]["args"]) == (200, {"region": WHOLE})
        paused = eventually(lambda: client.get("/api/v1/jobs/report").json()["paused"])
        assert paused["reason"] == WHOLE


async def test_rows_of_an_earlier_release_with_such_values_can_be_shown(tmp_path):
    """Stored before values were cleaned: the answer is, and nothing else is lost with it."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    with service(sample(url)) as client:
        eventually(lambda: client.get("/readyz").status_code == 200)
        store = store_from_url(url, "default")
        await store.open()
        await store.add_fire(NewFire("report!old", "report", {"region": HALF, "nan": float("nan")}))
        assert await store.find_fires(FireQuery(key="report!old"))
        await store.close()
        answer = client.get("/api/v1/fires")
        assert answer.status_code == 200
        assert {"region": WHOLE, "nan": None} in [each["args"] for each in answer.json()["items"]]
