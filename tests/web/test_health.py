"""Probes and status, also while the store does not answer."""

from __future__ import annotations

import time

import httpx2
import pytest

from fencepost import Scheduler
from fencepost.store.base import Roster
from fencepost.store.memory import MemoryStore
from tests.servers import Proxy
from tests.web.sample import sample, triggered
from tests.web.serving import QUICK, client_of, eventually, served, service


def test_a_lost_store_makes_unready_and_everything_answers_all_the_same(valkey_url: str) -> None:
    with Proxy(valkey_url) as proxy, service(sample(proxy.url)) as client:
        eventually(lambda: client.get("/readyz").json() == {"ready": True})
        proxy.hold()
        eventually(lambda: client.get("/readyz").status_code == 503)
        assert client.get("/health/ready").json() == {"ready": False, "reason": "store_lost"}
        assert client.get("/livez").json() == {"alive": True}
        status = client.get("/scheduler/status").json()
        assert (status["ready"], status["reason"], status["store_answers"]) == (False, "store_lost", False)
        assert status["replica"]
        assert client.get("/metrics").status_code == 200
        refused = client.get("/api/v1/status")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        proxy.release()
        eventually(lambda: client.get("/readyz").json() == {"ready": True})
        assert client.get("/api/v1/status").status_code == 200


def test_it_starts_without_its_store_and_says_so() -> None:
    with service(sample("redis://127.0.0.1:1/0")) as client:
        assert client.get("/readyz").json() == {"ready": False, "reason": "store_lost"}
        assert client.get("/livez").status_code == 200


def test_without_a_replica_the_store_is_asked() -> None:
    with service(sample("redis://127.0.0.1:1/0"), replica=False) as client:
        assert client.get("/readyz").json() == {"ready": False, "reason": "store_lost"}
        assert client.get("/livez").status_code == 200


class CountingStore(MemoryStore):
    """Counts how often the registry of replicas is read."""

    asked = 0

    async def roster(self) -> Roster:
        self.asked += 1
        return await super().roster()


def test_probes_without_a_replica_share_one_request_to_the_store() -> None:
    store = CountingStore()
    with service(Scheduler(store, **QUICK), replica=False) as client:
        began = time.monotonic()
        for _ in range(30):
            assert client.get("/readyz").json() == {"ready": True}
        assert store.asked <= 2 + (time.monotonic() - began)


def test_a_probe_has_a_budget_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.web.desk.MOST_QUESTIONS", 0)
    with service(sample(), replica=False) as client:
        assert client.get("/api/v1/status").status_code == 503
        assert client.get("/readyz").json() == {"ready": True}


def test_the_status_tells_of_this_process_and_of_the_cluster(client: httpx2.Client) -> None:
    triggered(client, "hold")
    status = eventually(lambda: (got := client.get("/scheduler/status").json())["running"] and got)
    assert status["ready"]
    assert status["is_leader"]
    assert status["leader"]["replica"] == status["replica"]
    assert status["jobs"] == {"running": 1, "idle": 2}


def test_draining_is_told_while_requests_are_answered() -> None:
    scheduler = Scheduler("memory://", **{**QUICK, "ready_delay": 0.2})
    with served(scheduler.asgi()) as url, client_of(url) as client:
        assert client.get("/readyz").status_code == 200
        scheduler.shutdown.draining = True
        answer = client.get("/health/ready")
        assert (answer.status_code, answer.json()) == (503, {"ready": False, "reason": "shutting_down"})
        assert client.get("/api/v1/status").status_code == 200
