"""A process beside a server's worker whose threads are greenlets, as under `gunicorn -k gevent`.

There a job that computes would stop all requests, and a request that computes all heartbeats; nor can one thread run
two event loops. So the worker starts a companion, which imports the same application without gevent, serves nothing,
and takes part. It ends when the worker does: the worker holds a pipe to it.

    python -m fencepost.scheduler.companion app:app
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import subprocess
import sys
import threading
from typing import Any

from fencepost.errors import ConfigurationError
from fencepost.scheduler import prefork

log = logging.getLogger("fencepost")

PATIENCE = 10.0
"""Seconds to leave, after the drain limit."""
AGAIN_AFTER = 1.0
"""Seconds from the end of one that was killed to the start of the next."""
_MODULE = "fencepost.scheduler.companion"


def is_companion() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == _MODULE


class Companion:
    """As the worker sees it."""

    def __init__(self, drain_seconds: float) -> None:
        self._application = _application()
        self._patience = drain_seconds + PATIENCE
        self._stopping = threading.Event()
        self._process = self._spawn()
        threading.Thread(target=self._keep, name="fencepost-companion", daemon=True).start()  # a greenlet

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._stopping.set()
        self._process.stdin.close()
        try:
            self._process.wait(self._patience)
        except subprocess.TimeoutExpired:
            log.error("process %s does not end; it is killed", self._process.pid)
            self._process.kill()
            self._process.wait()

    def forget(self) -> None:
        """In a forked child: its copy of the pipe must not keep the companion alive."""
        assert self._process.stdin is not None
        os.close(self._process.stdin.fileno())

    def _spawn(self) -> subprocess.Popen[bytes]:
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-m", _MODULE, self._application]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, env=env)
        log.info("threads are greenlets here: process %s beside this worker runs the jobs", process.pid)
        return process

    def _keep(self) -> None:
        """Start another companion when this one was killed."""
        while True:
            code = self._process.wait()
            if self._stopping.wait(AGAIN_AFTER):
                return
            log.error(
                "process %s, which runs jobs, has ended (%s); starting another", self._process.pid, code
            )
            self._process = self._spawn()


def _application() -> str:
    """The application as it was named to gunicorn: `app:app`."""
    if is_companion():
        raise ConfigurationError(
            "this application calls gevent's or eventlet's monkey patching itself: leave that to the server, or start "
            "`fencepost run` beside it"
        )
    worker = prefork.worker()
    if worker is None:
        raise ConfigurationError(
            "gevent or eventlet has replaced threads in this process: start `fencepost run` (`flask fencepost run`, "
            "`manage.py fencepost run`) as a process beside it; under gunicorn, call start_in_background() when the "
            "application is imported, and it is done for you"
        )
    application: str = worker.app.app_uri
    return application


def main(application: str) -> None:
    """Until the worker is gone, or SIGTERM. At exit the scheduler drains."""
    util: Any = importlib.import_module("gunicorn.util")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole terminal: the worker decides
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    util.import_app(application)
    sys.stdin.buffer.read()


if __name__ == "__main__":
    main(sys.argv[1])
