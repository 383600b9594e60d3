"""The replica's side of a body in a process of its own. Blocking: each has a thread that waits for it.

A process dies with its replica: the pipe to it closes, and it ends itself. And it holds the replica's beacon as long as
it lives, so that proof of the replica's death is proof that the body is dead as well.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Protocol

from fencepost.errors import BodyDied, CommandFailed, RaisedElsewhere
from fencepost.model import Json
from fencepost.runs.bodies import keeper
from fencepost.runs.bodies.command import Command
from fencepost.runs.fire import Fire, ReplicaLink
from fencepost.runs.masking import mask_for
from fencepost.runs.output import Lines
from fencepost.runs.tasks import Task
from fencepost.runs.tracing import current_traceparent
from fencepost.store.codec import to_json

KEPT_IN_ERROR = 8_000
"""Characters of a failed command's output that its error repeats: the last."""
KILL_AFTER = 5.0
"""Seconds from SIGTERM to SIGKILL."""
PATIENCE = 1.0
"""Seconds to wait for the rest of the output of a process that has ended: a child of its own may hold the pipe."""

Enter = Callable[[], None]
"""The last thing before the body starts; raises if it must not."""


class RunLink(ReplicaLink, Protocol):
    @property
    def trusted_until(self) -> float: ...

    def returned(self, value: object) -> None: ...

    def dropped_result(self, why: str) -> None: ...


class Body(Protocol):
    """A body that can be ended."""

    def run(self, enter: Enter) -> None:
        """Start it, wait for its end, raise what it raised. In a thread."""

    def stop(self, cause: str) -> None:
        """End it. From another thread; returns at once."""

    def trust_until(self, steady: float) -> None: ...


class _Process:
    """What both have in common: a process group that is ended as one."""

    def __init__(self) -> None:
        self._popen: subprocess.Popen[bytes] | None = None
        self._stopped: str | None = None
        self._lock = threading.Lock()

    def _start(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        if not hasattr(os, "killpg"):
            raise BodyDied(
                'commands and executor="process" need process groups, which this system does not have'
            )
        with self._lock:  # so that it is either not started, or there to be ended
            if self._stopped is not None:
                raise BodyDied("ended before it was started")
            self._popen = subprocess.Popen(argv, start_new_session=True, **options)
        return self._popen

    def stop(self, cause: str) -> None:
        with self._lock:
            self._stopped = cause
            running = self._popen is not None and self._popen.returncode is None
        if not running:
            return
        if cause == "fenced":
            self._signal(signal.SIGKILL)  # another attempt may be running: not an instant longer
            return
        self._signal(signal.SIGTERM)
        timer = threading.Timer(KILL_AFTER, self._signal, [signal.SIGKILL])
        timer.daemon = True
        timer.start()

    def _signal(self, number: int) -> None:
        popen = self._popen
        if popen is not None and popen.returncode is None:
            with suppress(ProcessLookupError):  # it has ended by itself
                os.killpg(popen.pid, number)

    def trust_until(self, steady: float) -> None:
        return


class CommandBody(_Process):
    def __init__(self, command: Command, fire: Fire, descriptors: Sequence[int] = ()) -> None:
        super().__init__()
        self._command = command
        self._fire = fire
        self._descriptors = descriptors

    def run(self, enter: Enter) -> None:
        self._fire._mask = mask_for({**os.environ, **self._command.env})
        enter()
        cwd = self._command.cwd
        try:
            popen = self._start(
                [sys.executable, "-I", "-S", keeper.__file__, *self._command.argv],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=self._command.environment(self._fire),
                pass_fds=self._descriptors,
            )
        except OSError as error:
            if cwd is not None and not os.access(cwd, os.X_OK):
                raise CommandFailed(f"cannot enter its working folder {cwd}: {error.strerror}") from error
            raise
        assert popen.stdout is not None
        with popen:
            _keep(popen.stdout.fileno(), self._fire)
            code = popen.wait()
        if code:
            output = self._fire._output
            end = output.last(KEPT_IN_ERROR) if output else ""
            raise CommandFailed(f"exit code {code}\n{end}".strip(), code)


class FunctionBody(_Process):
    """A function, found by its name in a fresh interpreter: `python -m fencepost.runs.bodies.child`."""

    def __init__(self, task: Task, fire: Fire, link: RunLink, descriptors: Sequence[int] = ()) -> None:
        super().__init__()
        self._task = task
        self._fire = fire
        self._link = link
        self._descriptors = descriptors
        self._socket: socket.socket | None = None
        self._sending = threading.Lock()
        self._traceparent: str | None = None

    def run(self, enter: Enter) -> None:
        ours, theirs = socket.socketpair()
        self._traceparent = current_traceparent() or self._fire.traceparent
        with ours, theirs:
            popen = self._start(
                [sys.executable, "-m", "fencepost.runs.bodies.child", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), *self._descriptors),
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                    "PYTHONUNBUFFERED": "1",  # what it has printed is seen although it may be killed
                    **({"TRACEPARENT": self._traceparent} if self._traceparent else {}),
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            theirs.close()
            readers = [self._reader(popen.stdout, 1), self._reader(popen.stderr, 2)]
            with suppress(OSError):  # it has ended, which the reader sees
                ours.sendall(_line(self._order()))
            self._socket = ours  # what is sent from elsewhere comes after that
            try:
                outcome = self._converse(enter)
            except BaseException:
                self._signal(signal.SIGKILL)
                popen.wait()
                raise
            finally:
                with self._sending:
                    self._socket = None
        code = popen.wait()
        for reader in readers:
            reader.join(PATIENCE)
        if outcome is None:
            raise BodyDied(_ended(code))
        if "raised" in outcome:
            raise RaisedElsewhere(outcome["raised"], outcome["names"], outcome["kind"], outcome["message"])
        if "dropped" in outcome:
            self._link.dropped_result(outcome["dropped"])
        self._link.returned(outcome.get("result"))

    def _reader(self, pipe: IO[bytes] | None, ours: int) -> threading.Thread:
        """Keeps what the process says, and passes it on to where it would have gone."""
        assert pipe is not None

        def read() -> None:
            with pipe:
                _keep(pipe.fileno(), self._fire, ours)

        reader = threading.Thread(target=read, name="fencepost-output", daemon=True)
        reader.start()
        return reader

    def trust_until(self, steady: float) -> None:
        self._tell({"trust": steady})

    def stop(self, cause: str) -> None:
        self._tell({"end": "fenced" if cause in ("fenced", "timeout") else "cancelled"})
        super().stop(cause)

    def _order(self) -> dict[str, Json]:
        return {
            "where": whereabouts(self._task.function),
            "prepared_by": getattr(self._task.function, "prepared_by", None),
            "fire": to_json(self._fire.record),
            "args": dict(self._fire.args),
            "trust": self._link.trusted_until,
            "scope": to_json(self._link.scope),
            "traceparent": self._traceparent,
        }

    def _converse(self, enter: Enter) -> dict[str, Any] | None:
        """Until it says how it ended; None: it did not say. One that is killed before it has read all that was sent to
        it resets the connection."""
        assert self._socket is not None
        with suppress(ConnectionResetError), self._socket.makefile("rb") as lines:
            for line in lines:
                message = json.loads(line)
                if "ready" in message:
                    enter()
                    self._send({"go": True})
                elif "report" in message:
                    self._link.report(message["report"])
                elif "save" in message:
                    self._save(message["save"], message["checkpoint"])
                elif "keep" in message:
                    self._link.keep(message["keep"])
                elif "ask" in message:
                    self._link.kept().add_done_callback(lambda kept: self._tell({"kept": kept.result()}))
                else:
                    return dict(message)
        return None

    def _save(self, number: int, checkpoint: Json) -> None:
        saved = self._link.save(checkpoint)

        def answer(saved: concurrent.futures.Future[bool]) -> None:
            if (error := saved.exception()) is not None:
                self._tell({"saved": number, "refused": str(error)})
            else:
                self._tell({"saved": number, "accepted": saved.result()})

        saved.add_done_callback(answer)

    def _tell(self, message: dict[str, Json]) -> None:
        """From the control loop, which must not wait: a process that reads nothing (it is stopped) misses it."""
        self._send(message, socket.MSG_DONTWAIT)

    def _send(self, message: dict[str, Json], flags: int = 0) -> None:
        with self._sending:
            if self._socket is not None:
                with suppress(OSError):
                    self._socket.sendall(_line(message), flags)


def _keep(pipe: int, fire: Fire, pass_on_to: int | None = None) -> None:
    """Read a pipe to its end, and keep what comes through it with the fire."""
    lines = Lines()
    while piece := os.read(pipe, 65_536):
        if pass_on_to is not None:
            with suppress(OSError):  # the process has closed its end
                os.write(pass_on_to, piece)
        if complete := lines.take(piece):
            fire._say(complete)
    if rest := lines.take(b""):
        fire._say(rest)


def _line(message: dict[str, Json]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _ended(code: int) -> str:
    if code >= 0:
        return f"its process ended with exit code {code} before the function did"
    return f"its process was killed by {signal.Signals(-code).name}"


def whereabouts(function: Callable[..., Any]) -> dict[str, str]:
    """How another interpreter finds this function."""
    module, name = function.__module__, function.__qualname__
    if module != "__main__":
        return {"module": module, "name": name}
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name:
        return {"module": spec.name, "name": name}
    return {"file": str(Path(main.__file__ or "").resolve()), "name": name}


def body_of(task: Task, fire: Fire, link: RunLink, descriptors: Sequence[int]) -> Body | None:
    """The body of a task that has a process of its own."""
    if isinstance(task.function, Command):
        return CommandBody(task.function, fire, descriptors)
    return FunctionBody(task, fire, link, descriptors) if task.in_process else None
