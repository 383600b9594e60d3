"""What the pod of a CronJob runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fencepost.cli.migrate.values import CannotCarryOver, Note, ShellCommand

REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")


def command_of(pod: Mapping[str, Any]) -> tuple[ShellCommand, list[Note]]:
    containers = pod.get("containers")
    if not isinstance(containers, list) or not containers or not isinstance(containers[0], Mapping):
        raise CannotCarryOver(
            "its pod has no container", "complete the manifest: kubectl get cronjob NAME -o yaml"
        )
    notes = []
    if len(containers) > 1 or pod.get("initContainers"):
        notes.append(
            Note(
                "the other containers of the pod",
                "only the first container's command is carried over",
                "run them beside the replica, or call them from the command",
            )
        )
    container = containers[0]
    if not container.get("command"):
        raise CannotCarryOver(
            "its container has no command, so the entry point of the image runs, which the manifest does not know",
            "add the entry point as command: and import again",
        )
    parts = (container["command"], container.get("args") or [])
    if not all(isinstance(part, list) and all(isinstance(word, str) for word in part) for part in parts):
        raise CannotCarryOver("its command is no list of texts", 'write it like command: ["work", "--all"]')
    words = [word for part in parts for word in part]
    env, unknown = _environment(container)
    if unknown:
        notes.append(
            Note(
                f"variables from elsewhere ({', '.join(unknown[:10])})",
                "the manifest does not hold their values",
                "give them to the replica, whose environment commands inherit",
            )
        )
    expanded = [_expanded(word, env) for word in words]
    folder = container.get("workingDir")
    return ShellCommand(expanded, env, folder if isinstance(folder, str) else None), notes


def _environment(container: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    env: dict[str, str] = {}
    unknown = ["envFrom"] if container.get("envFrom") else []
    for variable in container.get("env") or []:
        name = str(variable.get("name", "")) if isinstance(variable, Mapping) else ""
        if name and "valueFrom" not in variable:
            env[name] = _expanded(str(variable.get("value", "")), env)
        else:
            unknown.append(name)
    return env, unknown


def _expanded(text: str, env: Mapping[str, str]) -> str:
    """`$(NAME)` as Kubernetes replaces it: an unknown one stays, `$$` is one dollar."""
    return REFERENCE.sub(lambda found: "$" if found[0] == "$$" else env.get(found[1], found[0]), text)


def table(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = value.get(name)
    return found if isinstance(found, Mapping) else {}
