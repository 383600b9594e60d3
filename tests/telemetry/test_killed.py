"""Real processes, real stores: the spans of a pipeline that was killed and went on elsewhere are one trace by links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cluster.harness import Cluster
from tests.execution.places import url_of
from tests.telemetry.receiver import Received, Receiver, receiving
from tests.web.serving import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

FIVE = Path(__file__).parents[1] / "pipeline" / "apps" / "five.py"
SETTINGS: dict[str, Any] = {"leader_ttl": 2.0, "run_ttl": 2.0, "heartbeat": 0.5, "telemetry": "otel"}


def sends_to(receiver: Receiver) -> dict[str, str]:
    """By variables alone: the application knows nothing of OpenTelemetry."""
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "OTEL_METRIC_EXPORT_INTERVAL": "500",
        "OTEL_SERVICE_NAME": "five",
    }


def reached(spans: list[Received], first: Received) -> set[str]:
    """The ids of the spans that one finds from this one: by its trace, and by the links of what is found."""
    traces, before = {first.trace_id}, set[str]()
    while traces != before:
        before = set(traces)
        traces |= {link.trace_id for span in spans if span.trace_id in before for link in span.links}
    return {span.span_id for span in spans if span.trace_id in traces}


@pytest.mark.parametrize(
    "place",
    ["sqlite", "file", "valkey", "postgres"],
)
def test_a_pipeline_that_was_killed_and_resumed_is_one_trace_by_links(
    place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = url_of(place, tmp_path, request)
    with (
        receiving() as receiver,
        Cluster(url, tmp_path, env=sends_to(receiver), **SETTINGS) as cluster,
    ):
        first, second = cluster.start(2, FIVE, seconds=120)
        cluster.wait_for(
            lambda: cluster.reader.ask(lambda store: store.jobs(["five"])), 120, "the job is declared"
        )
        key = cluster.trigger("five")
        # The third phase of the first attempt does not end by itself, so what it had sent before is all there is.
        cluster.wait_for(lambda: receiver.named("phase two"), 120, "the second phase is sent")
        running = cluster.reader.fire(key)
        assert running is not None
        killed = next(each for each in (first, second) if str(each.pid) in (running.replica or ""))
        cluster.kill(killed)
        cluster.wait_for(lambda: receiver.named("run five"), 120, "the second attempt is sent")
        fire = cluster.reader.fire(key)

    assert fire is not None
    assert (fire.state, [each.outcome for each in fire.attempts]) == ("succeeded", ["lost", "succeeded"])
    [resumed] = receiver.named("run five")
    [cut_off] = receiver.named("run five cut off")
    phases = {
        (span["phase"], span.trace_id): span for span in receiver.spans if span.name.startswith("phase ")
    }
    old = {name for name, trace in phases if trace != resumed.trace_id and name != "initializing"}
    new = {name for name, trace in phases if trace == resumed.trace_id and name != "initializing"}
    assert (old, new) == ({"one", "two"}, {"three", "four", "five"})

    # The new attempt links to the old one, whose span was never sent; its phases are children of that span.
    one = next(span for (name, _), span in phases.items() if name == "one")
    repeats = [link for link in resumed.links if link.why == "repeats"]
    assert [(link.trace_id, link.span_id) for link in repeats] == [(one.trace_id, one.parent)]
    # In the old trace a span says how it ended, and links to where it went on.
    assert (cut_off.trace_id, cut_off.parent) == (one.trace_id, one.parent)
    assert [link.span_id for link in cut_off.links] == [resumed.span_id]
    assert (cut_off["outcome"], cut_off["replica"]) == ("lost", fire.attempts[0].replica)
    assert (resumed["outcome"], resumed["replica"]) == ("succeeded", fire.replica)
    assert resumed["fire.token"] > cut_off["fire.token"]
    # So from either end one finds all of them.
    about = [span for span in receiver.spans if span.trace_id in (one.trace_id, resumed.trace_id)]
    everything = {span.span_id for span in about}
    assert reached(receiver.spans, one) == reached(receiver.spans, resumed) == everything
    assert {span.resource["service.name"] for span in about} == {"five"}
    # Metrics come by the same way.
    assert "fencepost_store_operation_duration_seconds" in receiver.metrics


def test_a_run_that_is_lost_for_good_is_shown_by_the_leader(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/fencepost.db"
    app = tmp_path / "app.py"
    app.write_text(STUCK)
    with (
        receiving() as receiver,
        Cluster(url, tmp_path, env=sends_to(receiver), **SETTINGS) as cluster,
    ):
        first, second = cluster.start(2, app, seconds=120)
        cluster.wait_for(
            lambda: cluster.reader.ask(lambda store: store.jobs(["stuck"])), 120, "the job is declared"
        )
        key = cluster.trigger("stuck")
        fire: Any = cluster.wait_for(
            lambda: (found := cluster.reader.fire(key)) and found.state == "running" and found, 120, "it runs"
        )
        cluster.kill(next(each for each in (first, second) if str(each.pid) in fire.replica))
        [lost] = eventually(lambda: receiver.named("run stuck lost"))
    assert (lost["fire.key"], lost["outcome"], lost["replica"]) == (key, "lost", fire.replica)
    assert lost.status == 2
    assert lost.ended > lost.begun


STUCK = """
import os, time
from fencepost import Scheduler, every

scheduler = Scheduler(store=os.environ["LOAD_STORE"])

@scheduler.job(every(days=300), id="stuck")
def stuck():
    time.sleep(3600)

if __name__ == "__main__":
    scheduler.run()
"""
