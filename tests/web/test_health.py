"""Probes and status, also while the store does not answer."""

from __future__ import annotations

import time

import httpx2
import pytest

from fencepost import Event, Scheduler
from fencepost.store.base import DueJobs, Roster
from fencepost.store.memory import MemoryStore
from tests.servers import Proxy, valkey
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
        refused = client.get("/api/v1/fires")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        proxy.release()
        eventually(lambda: client.get("/readyz").json() == {"ready": True})
        assert client.get("/api/v1/status").status_code == 200


@pytest.mark.parametrize("takes_part", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_process_that_was_never_asked_answers_with_the_last_readings(takes_part: bool) -> None:
    """C10: Valkey is killed before anybody has asked it how the cluster stands."""
    with valkey() as server, service(sample(server.url)) as other:
        eventually(lambda: len(other.get("/api/v1/status").json()["jobs"]) == 3)
        scheduler = sample(server.url)
        with service(scheduler, replica=takes_part) as client:
            eventually(lambda: client.get("/readyz").json() == {"ready": True})
            eventually(lambda: scheduler.reader.last)
            server.kill()
            eventually(lambda: client.get("/readyz").status_code == 503)
            eventually(lambda: scheduler.reader.last_age_seconds > 0.1)  # ages are told in tenths of a second
            eventually(
                lambda: scheduler.reader.fresh("everything") is None
            )  # a reading is shared for a second
            for _ in range(2):
                began = time.monotonic()
                cluster, status = client.get("/scheduler/status"), client.get("/api/v1/status")
                assert time.monotonic() - began < 8.0
                assert (cluster.status_code, status.status_code) == (200, 200)
                for said in (cluster.json(), status.json()):
                    assert (said["store_answers"], said["age_seconds"] > 0) == (False, True)
                    assert said["as_of"]
                    assert said["leader"]
                    assert len(said["replicas"]) == 1 + takes_part
                assert cluster.json()["jobs"] == {"idle": 3}
                assert [job["id"] for job in status.json()["jobs"]] == ["hold", "nasty", "report"]
            etag = {"If-None-Match": status.headers["etag"]}
            assert client.get("/api/v1/status", headers=etag).status_code == 304, "only older"
            server.start()
            fresh = eventually(
                lambda: (said := client.get("/api/v1/status").json())["store_answers"] and said
            )
            assert fresh["age_seconds"] == 0


def test_it_starts_without_its_store_and_says_so() -> None:
    with service(sample("redis://127.0.0.1:1/0")) as client:
        assert client.get("/readyz").json() == {"ready": False, "reason": "store_lost"}
        assert client.get("/livez").status_code == 200
        refused = client.get("/api/v1/status")  # nothing has been read yet
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        status = client.get("/scheduler/status").json()
        assert (status["store_answers"], status["as_of"], status["age_seconds"]) == (False, None, None)


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
        before, began = store.asked, time.monotonic()
        for _ in range(30):
            assert client.get("/readyz").json() == {"ready": True}
        assert store.asked - before <= 2 + (time.monotonic() - began)


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


class StumblingStore(MemoryStore):
    """Cannot tell which jobs are due, for a reason that nobody has foreseen."""

    broken = True

    async def due_jobs(self, horizon: float, limit: int) -> DueJobs:
        if self.broken:
            raise RuntimeError("secret details of the store")
        return await super().due_jobs(horizon, limit)


def test_a_loop_that_keeps_failing_makes_unready_until_it_works_again() -> None:
    store = StumblingStore()
    scheduler = Scheduler(store, **QUICK)
    told: list[Event] = []
    scheduler.events.subscribe(told.append)
    with service(scheduler) as client:
        eventually(lambda: client.get("/readyz").json().get("reason", "").startswith("degraded"))
        unready = {"ready": False, "reason": "degraded: planner (RuntimeError)"}
        assert client.get("/readyz").json() == client.get("/health/ready").json() == unready
        status = client.get("/scheduler/status").json()
        assert (status["ready"], status["reason"]) == (False, unready["reason"])
        metrics = client.get("/metrics").text
        assert 'fencepost_loop_degraded{loop="planner"} 1.0' in metrics
        assert 'fencepost_loop_degraded{loop="settler"} 0.0' in metrics
        assert "fencepost_ready 0.0" in metrics
        [degraded] = [event for event in told if event.kind == "loop.degraded"]
        assert degraded.detail == "planner keeps failing: RuntimeError: secret details of the store"
        store.broken = False
        eventually(lambda: client.get("/readyz").json() == {"ready": True})
        assert 'fencepost_loop_degraded{loop="planner"} 0.0' in client.get("/metrics").text
        assert [event.detail for event in told if event.kind == "loop.recovered"] == ["planner"]
