"""Three real processes on a store, and how a stage tells what it sees."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from soak.places import Place

from fencepost.insight.audit import AuditFinding, AuditResult, Kind, audit
from tests.cluster.harness import Cluster, Process, Verdict

TTL = 2.0
SETTINGS: dict[str, Any] = {"leader_ttl": TTL, "run_ttl": TTL, "heartbeat": 0.5}
LOAD: dict[str, Any] = {"period": 10.0, "body": 0.2, "kind": "mixed", "slots": 30}
"""No job is due again before a run of its that was cut off is settled."""
LEAD_IN = 5.0
RATES = {"sqlite": 20, "file": 20}
"""Fires a second; 100 on servers."""

StreamEvent = Iterator[Verdict | str]
"""Sentences, of which those that begin with "violation: " count; and at the end the verdict. One that begins with
"skipped" ends the stage."""
Stage = Callable[[Place, float], StreamEvent]


@contextmanager
def three(
    where: Place, rate: int | None = None, envs: Sequence[Mapping[str, str]] = ({}, {}, {}), **options: Any
) -> Iterator[Cluster]:
    """Three processes at the moment from which on fires are due: a thousand jobs take a while to be declared."""
    rate = where.rate or rate or RATES.get(where.store, 100)
    load = {**LOAD, "jobs": round(rate * LOAD["period"]), "anchor": time.time() + LEAD_IN}
    with Cluster(where.url, where.folder, reader_url=where.direct, **load, **SETTINGS, **options) as cluster:
        cluster.joined([process for env in envs for process in cluster.spawn(env=env)])
        cluster.sleep_until(cluster.anchor)
        yield cluster


def fences(processes: list[Process]) -> Iterator[str]:
    for process in processes:
        for line in process.told().splitlines():
            if "fenced" in line or "replica.expired" in line or "Traceback" in line:
                yield f"violation: {line}"


def ended(cluster: Cluster) -> StreamEvent:
    asked = datetime.now(UTC)
    verdict = cluster.finish(patience=2 * TTL + 3)
    for process in cluster.processes:
        if "Traceback" in process.told():
            yield f"violation: {process.pid} told of an unexpected error:\n{process.told()[-1500:]}"
    report = cluster.reader.ask(lambda store: audit(store, since=datetime.fromtimestamp(cluster.anchor, UTC)))
    kinds = {kind.value: found[:2] for kind, found in counted(report, asked).items() if found}
    if kinds or report.unreadable:
        yield f"violation: the audit found {kinds}, and cannot read {report.unreadable[:2]}"
    yield str(verdict)
    yield verdict


def counted(report: AuditResult, asked: datetime) -> dict[Kind, list[AuditFinding]]:
    """Without what is left undecided at the stop: it was due after `asked`, and overdue soon after."""
    return {
        kind: [each for each in found if kind is not Kind.OVERDUE or each.due_at <= asked]
        for kind, found in report.findings.items()
    }
