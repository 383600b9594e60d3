"""The other side of `FunctionBody`: find the function, report that, run it on request, report how it ended.

It speaks JSON lines with its replica over the socket whose descriptor it was given. When the socket closes the replica
is gone, and this process ends at once: no replica could settle its run.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib
import json
import logging
import os
import runpy
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

from fencepost.clock import SystemClock
from fencepost.errors import ConfigurationError, NotStorable, RunCancelled
from fencepost.model import FireRecord, Json
from fencepost.model.retry import exception_names
from fencepost.model.values import clean_json
from fencepost.runs.fenced import Scope
from fencepost.runs.fire import RESULT_LIMIT, Fire, entered
from fencepost.runs.importing import refusing_starts
from fencepost.runs.tasks import Task
from fencepost.runs.tracing import continue_trace
from fencepost.store.codec import from_json

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class ParentReplica:
    """The fire's link back, as `execute.Run` is in the replica itself."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._lines = self._socket.makefile("rb")
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self._saves: dict[int, concurrent.futures.Future[bool]] = {}
        self._kept: concurrent.futures.Future[Json] | None = None
        self.trusted_until = 0.0
        self.scope = Scope()
        self.fire: Fire | None = None
        self.go = threading.Event()

    def receive(self) -> dict[str, Any]:
        line = self._lines.readline()
        if not line:
            os._exit(1)
        return dict(json.loads(line))

    def send(self, **message: Json) -> None:
        with self._lock:
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def listen(self) -> None:
        while True:
            message = self.receive()
            if "go" in message:
                self.go.set()
            elif "trust" in message:
                self.trusted_until = max(self.trusted_until, message["trust"])
            elif "saved" in message:
                saved = self._saves.pop(message["saved"])
                if "refused" in message:
                    saved.set_exception(NotStorable(message["refused"]))
                else:
                    saved.set_result(message["accepted"])
            elif "kept" in message and self._kept is not None:
                self._kept.set_result(message["kept"])
            elif "end" in message and self.fire is not None:
                self.fire._end(message["end"])

    def said(self) -> None:
        """The parent reads the output of a process from its pipes; the process does not send it."""

    def trusted(self) -> bool:
        return self.steady() < self.trusted_until

    def steady(self) -> float:
        return self._clock.steady()

    def report(self, progress: Mapping[str, Json]) -> None:
        self.send(report=dict(progress))

    def save(
        self, checkpoint: Json, progress: Mapping[str, Json] | None = None
    ) -> concurrent.futures.Future[bool]:
        if progress is not None:
            self.report(progress)
        saved: concurrent.futures.Future[bool] = concurrent.futures.Future()
        number = len(self._saves) + 1
        while number in self._saves:
            number += 1
        self._saves[number] = saved
        self.send(save=number, checkpoint=checkpoint)
        return saved

    def keep(self, value: Json) -> None:
        self.send(keep=value)

    def kept(self) -> concurrent.futures.Future[Json]:
        if self._kept is None:  # asked once: no other run of this job can succeed while this one lives
            self._kept = concurrent.futures.Future()
            self.send(ask="kept")
        return self._kept


def main(descriptor: int) -> None:
    replica = ParentReplica(descriptor)
    order = replica.receive()
    replica.trusted_until, replica.scope = order["trust"], from_json(Scope, order["scope"])
    fire = replica.fire = Fire(from_json(FireRecord, order["fire"]), order["args"], replica)
    fire.traceparent = order["traceparent"]
    threading.Thread(target=replica.listen, daemon=True).start()
    signal.signal(signal.SIGTERM, _cancelled)
    try:
        function = find(order["where"], order.get("prepared_by"))
        logging.basicConfig(format=LOG_FORMAT)  # does nothing where the module has set up logging
        continue_trace(fire)
        replica.send(ready=True)
        replica.go.wait()
        result = entered(fire, function, Task.of(function, "body").keywords(fire))
        if asyncio.iscoroutine(result):
            result = asyncio.run(result)
    except BaseException as error:
        replica.send(names=sorted(exception_names(error)), kind=type(error).__name__, **_described(error))
    else:
        replica.send(done=True, **_returned(result, fire.job_id))


def find(where: Mapping[str, str], prepared_by: str | None = None) -> Any:
    """The function, in its module; a script is run as a module that is not the main one. `prepared_by`: a module that
    sets up the framework of the function's own first."""
    sys.path.insert(0, str(Path.cwd()))
    if prepared_by is not None:
        importlib.import_module(prepared_by)
    if "file" in where:
        with refusing_starts(where["file"]):
            names: Any = runpy.run_path(where["file"], run_name="__fencepost_body__")
        first, *others = where["name"].split(".")
        return reduce(getattr, others, names[first])
    with refusing_starts(where["module"]):
        module = importlib.import_module(where["module"])
    return reduce(getattr, where["name"].split("."), module)


def _returned(result: object, job_id: str) -> dict[str, Json]:
    """As far as it can be stored; the replica checks it, too, and warns."""
    try:
        return {"result": clean_json(result, f"the result of job {job_id}", RESULT_LIMIT)}
    except ConfigurationError as error:
        return {"dropped": str(error)}


def _described(error: BaseException) -> dict[str, Json]:
    try:
        text, message = "".join(traceback.format_exception(error)), str(error)
    except Exception:  # an exception may be broken itself; the run has failed all the same
        message = "it cannot be shown"
        text = f"{type(error).__name__} ({message})"
    return {"raised": text[-8_192:], "message": message[:2_000]}


def _cancelled(number: int, frame: object) -> None:
    raise RunCancelled("this run was cancelled")


if __name__ == "__main__":
    main(int(sys.argv[1]))
