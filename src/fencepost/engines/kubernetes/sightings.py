"""What a Job and its pods say of an order."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from fencepost.engines.kubernetes.api import Api, ApiError, Object
from fencepost.errors import StoreUnavailable
from fencepost.runs.engines import GONE, RUNNING, WAITING, Sighting, ended

OUTPUT_LIMIT = 16_000
"""Characters of a log's end."""
ENDED_FROM_OUTSIDE = (
    "Evicted",
    "NodeLost",
    "NodeShutdown",
    "Preempting",
    "Shutdown",
    "Terminated",
    "UnexpectedAdmissionError",
)
"""Reasons of pods that were ended by the cluster, not by what they ran."""


async def sighting_of(job: Object, api: Api) -> Sighting:
    status = job.get("status") or {}
    over = next((each for each in status.get("conditions") or [] if _ends(each)), None)
    if over is None:
        return RUNNING if status.get("ready") else WAITING
    name = job["metadata"]["name"]
    pods = await api.pods_of(name)
    if any((pod.get("status") or {}).get("phase") == "Running" for pod in pods):
        return RUNNING  # a second pod has ended the Job; the first one is about to be ended with it
    if over["type"] == "Complete":
        # The worker settles its outcome before it ends with 0. If that is still open, the start gate has refused the
        # pods that are left: what had passed it is no more.
        return GONE
    reason = f"{over.get('reason') or 'Failed'}: {over.get('message') or 'the Job has failed'}"
    if over.get("reason") == "DeadlineExceeded":
        return ended(False, reason)
    for pod in pods:
        code, why = _exit(pod)
        if code and code != StoreUnavailable.exit_code:
            return ended(False, f"exit code {code} ({why or reason})", await _log(pod, api))
    # Its pods were lost, ended by the cluster, or could not reach the store: that is a crash, not a failure.
    return GONE


def _ends(condition: Object) -> bool:
    return condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True"


def _exit(pod: Object) -> tuple[int, str]:
    """0 if no container of it has failed by itself."""
    status = pod.get("status") or {}
    targets = [each for each in status.get("conditions") or [] if each.get("type") == "DisruptionTarget"]
    if status.get("reason") in ENDED_FROM_OUTSIDE or any(each.get("status") == "True" for each in targets):
        return 0, ""
    for container in status.get("containerStatuses") or []:
        over: dict[str, Any] = (container.get("state") or {}).get("terminated") or {}
        if over.get("exitCode"):
            return int(over["exitCode"]), str(over.get("reason") or "")
    return 0, ""


async def _log(pod: Object, api: Api) -> str | None:
    """None where there is none: the node may be gone."""
    with suppress(ApiError):
        container = pod["spec"]["containers"][0]["name"]
        return await api.log(pod["metadata"]["name"], container, OUTPUT_LIMIT)
    return None
