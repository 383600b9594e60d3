"""What an action asks of the store, and how the outcomes of the store are answered."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from fencepost import Scheduler
from fencepost.store.base import ChangeJob, PutJob
from fencepost.store.memory import MemoryStore
from fencepost.store.rules.fires import MANUAL_QUEUE_LIMIT
from tests.web.sample import FAR
from tests.web.serving import QUICK, service


class CountingStore(MemoryStore):
    """Notes the operations that it is asked for; removes a job right after it was read, if told to."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.removes: str | None = None

    def for_reading(self) -> MemoryStore:
        """What the pictures of the service are read from, at any time: actions do not ask it."""
        store = MemoryStore(self._clock)
        store.state, store._lock, store._hints = self.state, self._lock, self._hints
        return store

    async def _write(self, step: Any, *args: Any, **kwargs: Any) -> Any:
        self.calls.append(step.__name__)
        reply = await super()._write(step, *args, **kwargs)
        if self.removes is not None and self.calls[-1] == "jobs":
            id, self.removes = self.removes, None
            await self.change_job(ChangeJob(id, "remove"))
        return reply


def declared(store: CountingStore) -> Scheduler:
    """Its jobs are in the store, and no replica takes part: what the store is asked for is asked by requests."""
    scheduler = Scheduler(store, **QUICK)

    @scheduler.job(FAR, id="report", args={"region": "ch"})
    def report(region: str) -> None: ...

    asyncio.run(store.put_jobs([PutJob(job) for job in scheduler.jobs.values()]))
    return scheduler


def asked(client: httpx2.Client, store: CountingStore, path: str, **body: Any) -> tuple[int, list[str]]:
    store.calls.clear()
    answer = client.post(f"/api/v1/{path}", json=body)
    return answer.status_code, list(store.calls)


def test_an_action_is_one_step_of_the_store_and_a_read_only_where_its_words_need_one() -> None:
    store = CountingStore()
    with service(declared(store), replica=False) as client:
        trigger = "jobs/report/trigger"
        assert asked(client, store, trigger) == (202, ["add_fire"])
        assert asked(client, store, trigger, idempotency_key="monday", **{"in": "10m"}) == (202, ["add_fire"])
        assert asked(client, store, trigger, idempotency_key="monday") == (202, ["add_fire"])
        assert asked(client, store, trigger, if_active="refuse") == (409, ["add_fire"])
        # Arguments are checked against the task that the stored definition names.
        assert asked(client, store, trigger, args={"region": "de"}) == (202, ["jobs", "add_fire"])
        assert asked(client, store, "jobs/report/pause", reason="moving") == (200, ["change_job"])
        assert asked(client, store, "jobs/report/resume") == (200, ["change_job"])
        assert asked(client, store, "fires/report!monday/cancel") == (202, ["find_fires", "cancel_fire"])
        assert asked(client, store, "fires/report!monday/retry") == (202, ["find_fires", "add_fire"])
        assert asked(client, store, "jobs/trigger", ids=["report"]) == (200, ["add_fire"])
        assert asked(client, store, "jobs/pause", ids=["report"]) == (200, ["change_job"])


@pytest.mark.parametrize("body", [{}, {"args": {"region": "de"}}])
def test_a_job_that_is_removed_meanwhile_is_not_found_and_its_queue_is_not_full(body: dict[str, Any]) -> None:
    store = CountingStore()
    with service(declared(store), replica=False) as client:
        store.removes = "report"
        answer = client.post("/api/v1/jobs/report/trigger", json=body)
        if not body:  # nothing was read, so nothing was removed
            assert answer.status_code == 202
            asyncio.run(store.change_job(ChangeJob("report", "remove")))
            answer = client.post("/api/v1/jobs/report/trigger", json=body)
        assert answer.status_code == 404, answer.text
        assert "retry-after" not in answer.headers
        assert answer.json()["detail"] == "there is no job 'report' in the store"
        bulk = client.post("/api/v1/jobs/trigger", json={"ids": ["report"]}).json()["items"]
        assert [(item["ok"], item["status"]) for item in bulk] == [(False, 404)]


def test_a_full_queue_asks_the_caller_to_come_back() -> None:
    store = CountingStore()
    with service(declared(store), replica=False) as client:
        for _ in range(MANUAL_QUEUE_LIMIT):
            assert client.post("/api/v1/jobs/report/trigger").status_code == 202
        refused = client.post("/api/v1/jobs/report/trigger")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "10")
        bulk = client.post("/api/v1/jobs/trigger", json={"ids": ["report"]}).json()["items"]
        assert [(item["ok"], item["status"]) for item in bulk] == [(False, 429)]


def test_a_hint_names_no_job_that_the_caller_may_not_see() -> None:
    """Commands say `did you mean`; over HTTP a caller may be limited to some jobs."""
    with service(declared(CountingStore()), replica=False) as client:
        answer = client.post("/api/v1/jobs/reprt/trigger")
        assert (answer.status_code, answer.json()["detail"]) == (404, "there is no job 'reprt' in the store")
