"""Where bodies run: on the host's event loop and in threads, or inline where time is virtual."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from fencepost.runs.bodies.command import Command
from fencepost.runs.bodies.process import body_of
from fencepost.runs.fire import Fire, entered
from fencepost.runs.resources import opened, opened_blocking
from fencepost.runs.run import Host, NotStarted, Run
from fencepost.runs.threads import DaemonThreads, Work

log = logging.getLogger("fencepost")

Ends = Sequence[tuple[Run, BaseException | None]]
"""Bodies that have ended, each with what it raised."""
UNLIMITED = sys.maxsize
"""The room of a host that takes as many runs as there are slots."""
StandIn = Callable[[Fire, Sequence[str]], Any]
"""Called in place of a command, with its words."""


class InlineHost:
    """On the replica's own loop. For virtual time: nothing else may run there while a body blocks. Commands are not
    run: what they would do a year's times over is real."""

    detached = 0
    lingering = ()

    def room(self, now: float) -> int:
        return UNLIMITED

    def __init__(self, command: StandIn = lambda fire, words: None) -> None:
        self._bodies = Bodies(_end_here, command)

    def begin(self, runs: Sequence[Run]) -> None:
        for run in runs:
            self._bodies.begin(run)

    def cancel(self, run: Run) -> None:
        self._bodies.cancel(run)

    def silent_for(self, now: float) -> None:
        return None


class ClosableHost(Host, Protocol):
    def close(self) -> None:
        """No more bodies will come."""


class HostElsewhere:
    """What hosts share whose bodies run on other threads: the control loop only hears of their end."""

    def __init__(self) -> None:
        self._control: Mailbox | None = None
        self._outlived: dict[Run, None] = {}
        """Runs that have ended although their threads go on."""
        self._asked: float | None = None

    def room(self, now: float) -> int:
        return UNLIMITED

    @property
    def detached(self) -> int:
        return len(self._outlived)

    @property
    def lingering(self) -> tuple[str, ...]:
        return tuple(run.key for run in self._outlived)

    def _hear_here(self) -> None:
        """Called on the control loop, before the first body begins."""
        if self._control is None:
            self._control = Mailbox(asyncio.get_running_loop())

    def _outlive(self, run: Run) -> None:
        """A thread cannot be cancelled. Its run ends all the same; its slot stays taken until it returns."""
        if not run.outlived:
            log.warning(
                "%s was asked to end; its thread goes on and keeps its slot until it returns", run.key
            )
            run.outlived = True
            self._outlived[run] = None
            run.context.outlived()
            asyncio.get_running_loop().call_soon(run.ended, asyncio.CancelledError())

    def silent_for(self, now: float) -> float:
        """Seconds for which the host's thread has not answered; asks it again when it has."""
        asked = self._asked  # the answer comes on another thread
        if asked is None:
            self._asked = asked = now
            with suppress(RuntimeError):  # closed: its jobs fail by themselves
                self._call_there(self._answered)
        return now - asked

    def _answered(self) -> None:
        self._asked = None

    def _call_there(self, call: Work) -> None:
        """On the host's thread."""
        raise NotImplementedError

    def _report_end(self, run: Run, error: BaseException | None) -> None:
        self._report_ends([(run, error)])

    def _report_ends(self, ends: Ends) -> None:
        assert self._control is not None
        with suppress(RuntimeError):  # the control loop has ended without waiting for this
            self._control.put(*(partial(self._ended, run, error) for run, error in ends))

    def _ended(self, run: Run, error: BaseException | None) -> None:
        if run.outlived:
            del self._outlived[run]
            run.context.room_changed()
            run.context.outlived()
        else:
            run.ended(error)


class ThreadedHost(HostElsewhere):
    """Coroutines on the host's loop, functions in threads, which also wait for processes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, slots: int) -> None:
        super().__init__()
        self._bodies = Bodies(self._report_ends)
        self._host = Mailbox(loop)
        self._threads = DaemonThreads("fencepost-job", slots)

    def begin(self, runs: Sequence[Run]) -> None:
        self._hear_here()
        coroutines: list[Run] = []
        for run in runs:
            run.descriptors = run.context.descriptors
            run.body = body_of(run.task, run.fire, run, run.descriptors)
            if run.task.is_async and run.body is None:
                coroutines.append(run)
            else:
                call = partial(self._call, run)
                self._threads.put(call if run.variables is None else partial(run.variables.run, call))
        if coroutines:
            self._on_host(coroutines, self._bodies.begin)

    def cancel(self, run: Run) -> None:
        if run.body is not None:
            run.body.stop(run.cause or "")
        elif run.task.is_async:
            self._on_host([run], self._bodies.cancel)
        else:
            self._outlive(run)

    def close(self) -> None:
        self._threads.close()

    def _call_there(self, call: Work) -> None:
        self._host.put(call)

    def _on_host(self, runs: Sequence[Run], call: Callable[[Run], None]) -> None:
        try:
            self._host.put(*(partial(call, run) for run in runs))
        except RuntimeError as closed:  # the host's loop has ended before the scheduler was stopped
            for run in runs:
                asyncio.get_running_loop().call_soon(run.ended, closed)

    def _call(self, run: Run) -> None:
        error: BaseException | None = None
        try:
            if run.body is not None:
                run.body.run(run.enter)
            else:
                with opened_blocking(run.task.resources) as resources:
                    run.enter()
                    result = entered(run.fire, run.task.function, run.task.keywords(run.fire, resources))
                    if asyncio.iscoroutine(result):  # a function that turned out to be async
                        result = asyncio.run_coroutine_threadsafe(result, self._host.loop).result()
                    run.returned(result)
        except BaseException as raised:
            error = raised
        if run.body is not None and run.cause is not None and not isinstance(error, NotStarted):
            error = asyncio.CancelledError()  # it was ended, whatever it raised
        self._report_end(run, error)


class Bodies:
    """Coroutines as tasks on one event loop; all of this is called there."""

    def __init__(self, report: Callable[[Ends], None], command: StandIn | None = None) -> None:
        """`report`: called once for each body, together with those that end in the same turn of the loop."""
        self._report = report
        self._command = command
        self._tasks: dict[Run, asyncio.Task[BaseException | None]] = {}
        self._ends: list[tuple[Run, BaseException | None]] = []

    def begin(self, run: Run) -> None:
        task = asyncio.get_running_loop().create_task(
            _body(run, self._command), name=run.key, context=run.variables
        )
        self._tasks[run] = task
        task.add_done_callback(lambda task: self._ended(run, task))

    def cancel(self, run: Run) -> None:
        """The body's own task reports its end: after a cancel it counts as running until it has ended."""
        if run in self._tasks:
            self._tasks[run].cancel()

    def _ended(self, run: Run, task: asyncio.Task[BaseException | None]) -> None:
        del self._tasks[run]
        self._ends.append((run, asyncio.CancelledError() if task.cancelled() else task.result()))
        if len(self._ends) == 1:
            asyncio.get_running_loop().call_soon(self._report_ends)

    def _report_ends(self) -> None:
        ends, self._ends = self._ends, []
        self._report(ends)


def _end_here(ends: Ends) -> None:
    for run, error in ends:
        run.ended(error)


async def _body(run: Run, command: StandIn | None) -> BaseException | None:
    """Run the body. Whatever it raises is handed over as a value: some exceptions would end the loop itself,
    and others cannot pass through a future."""
    try:
        async with opened(run.task.resources) as resources:
            run.enter()
            function, keywords = run.task.function, run.task.keywords(run.fire, resources)
            if command is not None and isinstance(function, Command):
                function, keywords = partial(command, run.fire, function.argv), {}
            result = entered(run.fire, function, keywords)
            if asyncio.iscoroutine(result):
                result = await result
            if not isinstance(run.task.function, Command):
                run.returned(result)
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return error
    return None


class Mailbox:
    """Calls for the event loop of another thread. Waking it costs a system call and a switch of threads: calls
    that are put together, or gather until it has woken, share one. The system call lets the other thread go on at once,
    so what is put in a row, one by one, hardly gathers.

    The flag is cleared before the calls are taken. A caller that puts one after that finds it cleared and rings again;
    earlier callers have their calls taken now.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._calls: deque[Work] = deque()
        self._rung = False

    def put(self, *calls: Work) -> None:
        self._calls.extend(calls)
        if not self._rung:
            self._rung = True
            try:
                self.loop.call_soon_threadsafe(self._take)
            except RuntimeError:
                self._rung = False
                raise

    def _take(self) -> None:
        self._rung = False
        try:
            for _ in range(len(self._calls)):
                self._calls.popleft()()
        finally:
            if self._calls and not self._rung:  # one of them failed: the others are taken all the same
                self.loop.call_soon(self._take)
