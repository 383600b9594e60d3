"""The Job controller, played: a pod for each Job, sometimes two; lost ones; deadlines; deletion; TTL."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tests.servers.kubernetes.server import now
from tests.servers.kubernetes.state import Object, State

LOOK = 0.03
COMMAND = ["python", "-m", "fencepost.engine_worker"]


class Controller:
    """A context manager. `env`: what every pod finds in its environment beside what its template says."""

    def __init__(
        self, state: State, env: Mapping[str, str], folder: Path, modules: tuple[str, ...] = (), seed: int = 0
    ) -> None:
        self.twice = 0.0
        """The share of Jobs that are started twice."""
        self.slow = 0.0
        """Seconds a pod waits for its node."""
        self.started: list[str] = []
        """All pods."""
        self.exits: dict[str, int] = {}
        """Exit codes by pod."""
        self._state = state
        self._env = dict(env)
        self._folder = folder
        self._modules = modules
        self._random = random.Random(seed)
        self._numbers = itertools.count(1)
        self._begun: dict[str, float] = {}
        """Jobs that this controller has started pods for, since its last restart."""
        self._pods_of: dict[str, list[str]] = defaultdict(list)
        """By Job."""
        self._lock = threading.RLock()
        self._stopping = threading.Event()

    def __enter__(self) -> Self:
        self._kubelet = subprocess.Popen(
            [sys.executable, "-m", "tests.servers.kubernetes.kubelet", *self._modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **self._env},
            cwd=Path(__file__).parents[3],
        )
        assert self._kubelet.stdout is not None
        assert b"ready" in self._kubelet.stdout.readline(), "the kubelet did not start"
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._hear, self._control)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        assert self._kubelet.stdin is not None
        with self._lock:
            self._kubelet.stdin.close()
        self._kubelet.wait(20)
        for thread in self._threads:
            thread.join(20)
        if self._kubelet.stdout is not None:
            self._kubelet.stdout.close()

    # --- harm -----------------------------------------------------------------------------------------------

    def restart(self) -> list[str]:
        """It forgets which pods it has started, and starts another one for each Job that is active; which."""
        with self._lock:
            jobs, _ = self._state.all("jobs")
            again = [job for job in jobs if job["status"].get("active") and not _over(job)]
            for job in again:
                self._start_pod(job)
            return [job["metadata"]["name"] for job in again]

    def running(self) -> list[str]:
        pods, _ = self._state.all("pods")
        return [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Running"]

    def lose(self, pod: str) -> None:
        """As when a node is lost: its process is dead, its object gone, and with it the log."""
        self._kubelet_does({"kill": pod, "signal": 9})
        self._state.remove("pods", pod)

    # --- inside -----------------------------------------------------------------------------------------------

    def _control(self) -> None:
        while not self._stopping.wait(LOOK):
            self.reconcile()

    def reconcile(self) -> None:
        """Once for all Jobs."""
        with self._lock:
            for job in self._state.all("jobs")[0]:
                self._look_after(job)
            self._collect_orphans()

    def _look_after(self, job: Object) -> None:
        name = job["metadata"]["name"]
        if "deletionTimestamp" in job["metadata"]:
            self._delete(name)
        elif over := _over(job):
            if time.time() > over["at"] + job["spec"]["ttlSecondsAfterFinished"]:
                self._delete(name)
        elif name not in self._begun and "startTime" not in job["status"]:
            self._begun[name] = time.monotonic()
            self._state.change("jobs", name, lambda job: job["status"].update(startTime=now(), active=1))
            for _ in range(2 if self._random.random() < self.twice else 1):
                self._start_pod(job)
        else:
            self._count(job)

    def _start_pod(self, job: Object) -> None:
        template = job["spec"]["template"]
        container = template["spec"]["containers"][0]
        assert container["command"] == COMMAND
        name = f"{job['metadata']['name']}-{next(self._numbers)}"
        labels = {**template["metadata"].get("labels", {}), "job-name": job["metadata"]["name"]}
        pod = {
            "metadata": {"name": name, "labels": labels},
            "spec": template["spec"],
            "status": {"phase": "Pending"},
        }
        self._state.create("pods", pod)
        self._pods_of[job["metadata"]["name"]].append(name)
        self.started.append(name)
        threading.Timer(self.slow, self._start_process, [name, container]).start()

    def _start_process(self, name: str, container: Object) -> None:
        env = {each["name"]: each["value"] for each in container["env"]}
        if self._state.change("pods", name, lambda pod: pod["status"].update(phase="Running")) is not None:
            self._kubelet_does(
                {"start": name, "env": {**self._env, **env}, "log": str(self._folder / f"{name}.log")}
            )

    def _count(self, job: Object) -> None:
        """What its pods say of a Job: one that has succeeded completes it, one that has failed or vanished fails it."""
        name = job["metadata"]["name"]
        pods = [pod["status"]["phase"] for pod in self._pods(name)]
        ready = pods.count("Running")
        deadline = job["spec"].get("activeDeadlineSeconds")
        if "Succeeded" in pods:
            self._end(name, "Complete", "", "")
        elif deadline is not None and time.monotonic() > self._begun[name] + deadline:
            self._end(name, "Failed", "DeadlineExceeded", "Job was active longer than specified deadline")
            self._remove_pods(name)
        elif not ready and "Pending" not in pods:
            self._end(name, "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        else:
            self._state.change("jobs", name, lambda job: job["status"].update(ready=ready, active=len(pods)))

    def _end(self, name: str, type: str, reason: str, message: str) -> None:
        """Pods that still run are ended."""
        condition = {"type": type, "status": "True", "reason": reason, "message": message, "at": time.time()}
        ended = {"conditions": [condition], "active": 0, "ready": 0}
        self._state.change("jobs", name, lambda job: job["status"].update(ended))
        for pod in self._pods(name):
            if pod["status"]["phase"] in ("Running", "Pending"):
                self._kubelet_does({"kill": pod["metadata"]["name"], "signal": 15})

    def _delete(self, name: str) -> None:
        """Its pods first, then itself."""
        if not self._remove_pods(name):
            self._state.remove("jobs", name)
            self._begun.pop(name, None)

    def _remove_pods(self, name: str) -> bool:
        """Whether some are still running."""
        running = False
        for pod in self._pods(name):
            if pod["status"]["phase"] == "Running":
                self._kubelet_does({"kill": pod["metadata"]["name"], "signal": 9})
                running = True
            else:
                self._state.remove("pods", pod["metadata"]["name"])
        return running

    def _collect_orphans(self) -> None:
        jobs = {job["metadata"]["name"] for job in self._state.all("jobs")[0]}
        for pod in self._state.all("pods")[0]:
            if pod["metadata"]["labels"]["job-name"] not in jobs:
                self._remove_pods(pod["metadata"]["labels"]["job-name"])

    def _pods(self, job: str) -> list[Object]:
        return self._state.find("pods", self._pods_of[job])

    def _kubelet_does(self, what: dict[str, Any]) -> None:
        with self._lock:
            if not self._stopping.is_set():
                assert self._kubelet.stdin is not None
                self._kubelet.stdin.write(json.dumps(what).encode() + b"\n")
                self._kubelet.stdin.flush()

    def _hear(self) -> None:
        assert self._kubelet.stdout is not None
        for line in self._kubelet.stdout:
            said = json.loads(line)
            self._ended(said["pod"], said["code"])

    def _ended(self, pod: str, code: int) -> None:
        self.exits[pod] = code
        log = self._folder / f"{pod}.log"
        if log.exists():
            self._state.logs[pod] = log.read_bytes()
        terminated = {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}
        status = {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [{"name": "job", "state": {"terminated": terminated}}],
        }
        self._state.change("pods", pod, lambda pod: pod["status"].update(status))


def _over(job: Object) -> Object | None:
    return next(iter(job["status"].get("conditions") or []), None)
