"""Starts pods: `python -m tests.servers.kubernetes.kubelet MODULE…`, a process that forks one for each.

It has imported the modules already, so that a pod takes milliseconds to start. A line on its standard input,
`{"start": pod, "env": {…}, "log": path}` or `{"kill": pod, "signal": 9}`, tells it what to do; it answers
`{"pod": …, "code": …}` when one has ended. When its input ends it kills all and ends too.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import select
import signal
import sys
import traceback
from typing import Any

WORKER = "fencepost.engine_worker"


def main() -> None:
    for module in sys.argv[1:]:
        importlib.import_module(module)
    pods: dict[int, str] = {}
    answer({"ready": os.getpid()})
    buffer = b""
    while True:
        if select.select([0], [], [], 0.02)[0]:
            piece = os.read(0, 65_536)
            if not piece:
                break
            *lines, buffer = (buffer + piece).split(b"\n")
            for line in lines:
                obey(json.loads(line), pods)
        reap(pods)
    for pid in pods:
        os.killpg(pid, signal.SIGKILL)


def obey(asked: dict[str, Any], pods: dict[int, str]) -> None:
    if "start" in asked:
        pid = os.fork()
        if not pid:
            run(asked)
        pods[pid] = asked["start"]
        return
    for pid, pod in pods.items():
        if pod == asked["kill"]:
            try:
                os.killpg(pid, asked["signal"])
            except ProcessLookupError:
                os.kill(pid, asked["signal"])  # it has not come to its group yet


def reap(pods: dict[int, str]) -> None:
    for pid in list(pods):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            answer({"pod": pods.pop(pid), "code": code if code >= 0 else 128 - code})


def run(asked: dict[str, Any]) -> None:
    """In the child, which never returns."""
    code = 1
    try:
        os.setpgid(0, 0)
        log = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(asked["env"], LOAD_POD=asked["start"])
        sys.argv = [WORKER]
        runpy.run_module(WORKER, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def answer(what: dict[str, Any]) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


if __name__ == "__main__":
    main()
