"""A Job for an order, made of the pod template that a job's `engine={…}` gives."""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from fencepost.engines.options import Kinds, checked
from fencepost.errors import ConfigurationError
from fencepost.model import Json
from fencepost.runs.engines import Order

MANAGED_BY = "app.kubernetes.io/managed-by"
SELECTOR = f"{MANAGED_BY}=fencepost"
FINGERPRINT = "fencepost.dev/fingerprint"
COMMAND = ["python", "-m", "fencepost.engine_worker"]

KEPT_FOR = 86_400
"""Seconds for which a Job that has ended is kept if no replica has collected its outcome: longer than any outage."""
STARTS_WITHIN = 600
"""Seconds added to the timeout: the deadline of a Job counts from its creation, so the time that a pod waits for a node
and its image is part of it. The worker itself keeps to the timeout."""
ORDER_LIMIT = 120_000
"""Bytes: Linux refuses a longer variable."""
TEMPLATE_LIMIT = 65_536

OPTIONS: Kinds = {
    "template": (str, dict),
    "image": str,
    "container": str,
    "service_account": str,
    "resources": dict,
    "env": dict,
    "starts_within": int,
    "kept_for": int,
}


def checked_options(options: Mapping[str, Json]) -> dict[str, Json]:
    """A template that is a file is read here, where the job is declared: replicas elsewhere find it in the store."""
    given = checked(options, OPTIONS, "Kubernetes")
    for name in ("starts_within", "kept_for"):
        if not 0 < int(given.get(name) or 1) <= 31_536_000:
            raise ConfigurationError(f"engine option {name!r} must be seconds, above 0 and at most a year")
    if isinstance(given.get("template"), str):
        given["template"] = _read(Path(given["template"]))
    _pod_template(given)
    return given


def job_for(order: Order, namespace: str) -> dict[str, Any]:
    if len(order.text.encode()) > ORDER_LIMIT:
        raise ConfigurationError(
            f"{order.key}: its arguments are too long for a pod's environment ({ORDER_LIMIT} bytes); "
            "store them elsewhere and pass where they are"
        )
    options = order.options
    pod = _pod_template(options)
    spec = pod["spec"]
    container = _container(spec, options)
    own = {**options.get("env", {}), "FENCEPOST_ORDER": order.text}
    container["command"] = COMMAND
    container["env"] = [
        *(each for each in container.get("env", []) if each.get("name") not in own),
        *({"name": name, "value": str(value)} for name, value in own.items()),
    ]
    spec["restartPolicy"] = "Never"
    labels = {MANAGED_BY: "fencepost"}
    about = {"fencepost.dev/key": order.key, "fencepost.dev/token": str(order.token)}
    pod["metadata"] = _with(pod.get("metadata", {}), labels, about)
    job: dict[str, Any] = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": order.ref,
            "namespace": namespace,
            "labels": labels,
            "annotations": {**about, FINGERPRINT: fingerprint(order)},
        },
        "spec": {
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": options.get("kept_for", KEPT_FOR),
            "template": pod,
        },
    }
    if order.timeout is not None:
        allowance = options.get("starts_within", STARTS_WITHIN)
        job["spec"]["activeDeadlineSeconds"] = math.ceil(order.timeout) + allowance
    return job


def fingerprint(order: Order) -> str:
    """Of what makes two orders the same one. A Job of this name with another fingerprint is not ours."""
    said = "\n".join((order.namespace, order.key, str(order.token), order.job_id, order.target))
    return hashlib.sha256(said.encode()).hexdigest()[:32]


def _pod_template(options: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the template, with the options that have words of their own filled in. Raises if no pod comes of it."""
    pod: dict[str, Any] = copy.deepcopy(options.get("template") or {})
    spec = pod.setdefault("spec", {})
    if not isinstance(spec, dict) or not isinstance(pod.get("metadata", {}), dict):
        raise ConfigurationError("engine option 'template': give a pod template, with metadata and spec")
    if spec.get("restartPolicy", "Never") != "Never":
        raise ConfigurationError(
            "engine option 'template': leave out restartPolicy; Fencepost repeats runs itself, by retry="
        )
    container = _container(spec, options)
    if "command" in container:
        raise ConfigurationError(
            f"engine option 'template': leave out the command of container {container['name']!r}; it is started with "
            f"{' '.join(COMMAND)}, which runs the job's function"
        )
    if "image" in options:
        container["image"] = options["image"]
    if "image" not in container:
        raise ConfigurationError("executor=\"kubernetes\" needs an image: engine={'image': …}")
    if "resources" in options:
        container["resources"] = options["resources"]
    if "service_account" in options:
        spec["serviceAccountName"] = options["service_account"]
    return pod


def _container(spec: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Which container of the pod runs the job: the one named, or the first."""
    containers = spec.setdefault("containers", [])
    name = options.get("container")
    if not isinstance(containers, list) or not all(isinstance(each, dict) for each in containers):
        raise ConfigurationError("engine option 'template': spec.containers must be a list of containers")
    if not containers:
        containers.append({"name": name or "job"})
    for container in containers:
        if name in (None, container.get("name")):
            found: dict[str, Any] = container
            found.setdefault("name", "job")
            return found
    raise ConfigurationError(f"engine option 'container': the template has no container {name!r}")


def _with(metadata: dict[str, Any], labels: dict[str, str], annotations: dict[str, str]) -> dict[str, Any]:
    return {
        **metadata,
        "labels": {**metadata.get("labels", {}), **labels},
        "annotations": {**metadata.get("annotations", {}), **annotations},
    }


def _read(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            text = file.read(TEMPLATE_LIMIT + 1)
        found = yaml.safe_load(text)
    except (OSError, yaml.YAMLError) as error:
        raise ConfigurationError(f"engine option 'template': {path} cannot be read: {error}") from None
    if len(text) > TEMPLATE_LIMIT:
        raise ConfigurationError(f"engine option 'template': {path} is longer than {TEMPLATE_LIMIT} bytes")
    if not isinstance(found, dict):
        raise ConfigurationError(f"engine option 'template': {path} is not a pod template")
    kind = found.get("kind")
    if kind == "PodTemplate":
        found = found.get("template", {})
    elif kind not in (None, "Pod"):
        raise ConfigurationError(f"engine option 'template': {path} is a {kind}; give a Pod or a PodTemplate")
    return {name: found[name] for name in ("metadata", "spec") if name in found}
