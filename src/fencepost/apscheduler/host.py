"""Where the bodies of guarded jobs run: on APScheduler's executors, handed over on the scheduler's own thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import logging
import sys
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from apscheduler.events import (
    EVENT_JOB_ERROR,
    EVENT_JOB_SUBMITTED,
    JobSubmissionEvent,
)
from apscheduler.job import Job
from apscheduler.schedulers.base import STATE_RUNNING
from apscheduler.util import iscoroutinefunction_partial

from fencepost.apscheduler.calls import function_of
from fencepost.apscheduler.pools import STEP_BACK, Pools
from fencepost.apscheduler.registry import Guarded
from fencepost.errors import RaisedElsewhere, UsageError
from fencepost.runs.fire import entered
from fencepost.runs.host import HostElsewhere
from fencepost.runs.recurring import RecurringErrors
from fencepost.runs.run import NotStarted, Run, TooLate
from fencepost.runs.threads import Work

if TYPE_CHECKING:
    from fencepost.apscheduler.registry import GuardedJobs

log = logging.getLogger("fencepost")

QUEUED = 1.0
"""Seconds after which a run counts as having waited for a thread. Less is the time it takes to hand one over."""
_NOT_STARTED = object()


class ExecutorHost(HostElsewhere):
    """Runs are handed over where the scheduler itself would hand over a job: `wakeup` makes its thread, or its event
    loop, call `_process_jobs`, and that calls `hand_over` first. So any executor gets what it expects."""

    def __init__(
        self, scheduler: Any, registry: GuardedJobs, handing_over: Callable[[Guarded, datetime], None]
    ) -> None:
        """`handing_over` is called before an executor gets a scheduled run, on the scheduler's thread."""
        super().__init__()
        self._scheduler = scheduler
        self._registry = registry
        self._handing_over = handing_over
        self._pools = Pools(scheduler, registry)
        self._arrived: dict[Run, float] = {}
        """When runs came here, by the steady clock."""
        self._claimed: deque[Run] = deque()
        self._errands: deque[Work] = deque()
        self._handed: set[Run] = set()
        """Handed over, and not known to have ended."""
        self._tasks: dict[Run, asyncio.Task[Any]] = {}
        self._closed = False
        self._errors = RecurringErrors(log)

    def room(self, now: float) -> int:
        """A scheduler that is paused, or not running, takes no runs."""
        running = self._scheduler.state == STATE_RUNNING and not self._closed
        return self._pools.room(now) if running else 0

    def begin(self, runs: Sequence[Run]) -> None:
        self._hear_here()
        for run in runs:
            self._arrived[run] = run.steady()
            if self._pools.admit(run):
                self._claimed.append(run)
            else:
                self._wait_or_give_back(run)
        self._wake()

    def _wait_or_give_back(self, run: Run) -> None:
        loop, heartbeat = asyncio.get_running_loop(), run.context.heartbeat
        if self._pools.wait(run, heartbeat):
            loop.call_later(heartbeat, self._give_back_waiting, run)
        else:
            loop.call_later(STEP_BACK, run.context.room_changed)
            self._report_end(run, NotStarted())

    def _give_back_waiting(self, run: Run) -> None:
        if self._pools.drop(run):
            self._report_end(run, NotStarted())

    def cancel(self, run: Run) -> None:
        """A coroutine that has not begun finds out when it enters."""
        if self._pools.drop(run):
            self._report_end(run, NotStarted())
        elif not run.task.is_async:
            self._outlive(run)
        elif (task := self._tasks.get(run)) is not None:
            with suppress(RuntimeError):  # its event loop has ended, and the task with it
                task.get_loop().call_soon_threadsafe(task.cancel)

    def close(self) -> None:
        """From any thread: nothing more is begun. What waits to be handed over goes back unstarted."""
        self._closed = True
        for run in self._pools.clear():
            self._report_end(run, NotStarted())
        while self._claimed:
            with suppress(IndexError):  # handed over at this very moment
                self._report_end(self._claimed.popleft(), NotStarted())

    def abandon(self) -> None:
        """At the end of the process: coroutines whose event loop has stopped will never end."""
        for run, task in list(self._tasks.items()):
            if not task.get_loop().is_running():
                self._conclude(run, asyncio.CancelledError())

    # --- on the scheduler's own thread ---------------------------------------------------------------------

    def hand_over(self) -> None:
        for _ in range(len(self._errands)):
            self._do(self._errands.popleft())
        while self._claimed:
            with suppress(IndexError):
                self._submit(self._claimed.popleft())

    def _do(self, errand: Work) -> None:
        try:
            errand()
        except Exception as error:  # of a job store: the scheduler's thread must go on
            self._errors.log("the guard could not do what it had to on the scheduler's thread", error)

    def soon(self, errand: Work) -> None:
        """Do this on the scheduler's own thread. From any thread."""
        self._errands.append(errand)
        self._wake()

    def silent_for(self, now: float) -> float:
        """Of schedulers that run on an event loop. The thread of another one runs no jobs."""
        on_loop = getattr(self._scheduler, "_eventloop", None) is not None
        return super().silent_for(now) if on_loop and not self._closed else 0.0

    def _call_there(self, call: Work) -> None:
        self.soon(call)

    def _wake(self) -> None:
        if self._closed:
            self.close()
        elif self._scheduler.running:
            try:
                self._scheduler.wakeup()
            except (RuntimeError, AttributeError) as error:  # the event loop was closed, or is gone
                log.error("the scheduler's event loop has ended (%s): this replica runs no more jobs", error)
                self.close()

    def _submit(self, run: Run) -> None:
        self._handed.add(run)
        guarded = self._registry.named(run.task.name)
        if guarded is None:  # removed while the claim was on its way
            self._conclude(run, NotStarted())
            return
        if run.claim.fire.args:
            self._conclude(run, UsageError(f"{guarded.name} is APScheduler's: trigger it without arguments"))
            return
        function = function_of(guarded, run.claim.job, self._registry)
        if function is None:  # the mirror will notice, too, and claim it no more
            self._conclude(run, NotStarted())
            return
        job = self._stand_in(guarded, run, function)
        times = [run.fire.due_at.astimezone(self._scheduler.timezone)]
        try:
            executor = self._scheduler._lookup_executor(job.executor)
            self._listen_to(executor)
            if _is_process_pool(executor):
                _enter(run, self._arrived[run])  # the last moment of which this process knows
            else:
                job.func = self._entering(run, function)
            if run.fire.scheduled:
                self._do(partial(self._handing_over, guarded, run.fire.due_at))
            executor.submit_job(job, times)
        except NotStarted as error:
            self._conclude(run, error)
            return
        except RuntimeError as error:
            log.error("executor %r takes no more jobs (%s): this replica runs none", job.executor, error)
            self._conclude(run, NotStarted())
            self.close()
            return
        except Exception as error:
            log.exception("job %s could not be handed to executor %r", guarded.name, job.executor)
            self._conclude(run, error)
            return
        event = JobSubmissionEvent(EVENT_JOB_SUBMITTED, guarded.job.id, guarded.alias, times)
        self._scheduler._dispatch_event(event)

    def _stand_in(self, guarded: Guarded, run: Run, function: Callable[..., Any]) -> Any:
        """A copy of the job for this one run. Slot by slot: `copy` refuses jobs that cannot be pickled."""
        job = Job.__new__(Job)
        for slot in Job.__slots__:
            if slot != "__weakref__" and hasattr(guarded.job, slot):
                setattr(job, slot, getattr(guarded.job, slot))
        job.id = FireId.of(guarded.job.id, run, self)
        changed = run.claim.job.args  # perhaps by another process
        job.func = function
        job.args, job.kwargs = changed.get("args", job.args), changed.get("kwargs", job.kwargs)
        # The store has judged both. A late start must not undo a claim; and an executor counts a run until all its
        # listeners have been called, when the next run may have started already.
        job.misfire_grace_time, job.max_instances = None, sys.maxsize
        return job

    def _entering(self, run: Run, function: Callable[..., Any]) -> Callable[..., Any]:
        """The job's function, entered as a run."""
        arrived = self._arrived[run]

        async def coroutine(*args: Any, **keywords: Any) -> Any:
            task = asyncio.current_task()
            assert task is not None
            self._tasks[run] = task
            if not self._enters(run, arrived):
                return _NOT_STARTED
            for variable, value in (run.variables or {}).items():
                variable.set(value)
            return await entered(run.fire, partial(function, *args), keywords)

        def blocking(*args: Any, **keywords: Any) -> Any:
            if not self._enters(run, arrived):
                return _NOT_STARTED
            # Its end is reported here, and not only by the executor: AsyncIOExecutor learns of it on an event loop
            # that may be blocked, or gone. Pools share their threads' contexts: this one is the run's own.
            try:
                context = run.variables or contextvars.copy_context()
                result = context.run(entered, run.fire, partial(function, *args), keywords)
            except BaseException as error:
                self._conclude(run, error)
                raise
            self._conclude(run, None)
            return result

        return coroutine if iscoroutinefunction_partial(function) else blocking

    # --- on the executors' threads -------------------------------------------------------------------------

    def _enters(self, run: Run, arrived: float) -> bool:
        """Whether its body may start. If not, the executor reports it, unless the request came too late."""
        try:
            _enter(run, arrived)
        except TooLate as error:
            self._conclude(run, error)
            return False
        except NotStarted:
            return False
        return True

    def _listen_to(self, executor: Any) -> None:
        """Executors report a job's end through these two, with the id of the job they were given. They outlive a stop
        of the scheduler, and this host does not: the id says which host to call."""
        if "_run_job_success" in vars(executor):
            return
        success, failure, shutdown = executor._run_job_success, executor._run_job_error, executor.shutdown

        def on_success(job_id: str, events: list[Any]) -> None:
            success(job_id, job_id.host._heard(job_id.run, events) if isinstance(job_id, FireId) else events)

        def on_failure(job_id: str, error: BaseException, trace: Any = None) -> None:
            if isinstance(job_id, FireId):
                job_id.host._tasks.pop(job_id.run, None)
                job_id.host._conclude(job_id.run, error)
            failure(job_id, error, trace)

        def on_shutdown(wait: bool = True) -> None:
            # AsyncIOExecutor would cancel what runs, and call that an error. The drain limit decides.
            executor._pending_futures.clear()
            shutdown(wait)

        executor._run_job_success, executor._run_job_error = on_success, on_failure
        if hasattr(executor, "_pending_futures"):
            executor.shutdown = on_shutdown

    def _heard(self, run: Run, events: list[Any]) -> list[Any]:
        self._tasks.pop(run, None)
        error: BaseException | None = None
        for event in events:
            event.job_id = str(event.job_id)
            if event.code == EVENT_JOB_ERROR:
                error = _raised(event)
            elif event.retval is _NOT_STARTED:
                self._conclude(run, NotStarted())
                return []
        self._conclude(run, error)
        return events

    def _conclude(self, run: Run, error: BaseException | None) -> None:
        """The first report of a run's end counts."""
        with suppress(KeyError):
            self._handed.remove(run)
            self._report_end(run, error)

    def _ended(self, run: Run, error: BaseException | None) -> None:
        if isinstance(error, asyncio.CancelledError) and run.cause is None and self._closed:
            run.cancel("drain")  # by the event loop, which ends with its application
        super()._ended(run, error)
        self._arrived.pop(run, None)
        if freed := self._pools.ended(run):
            self._claimed.extend(freed)
            self._wake()


class FireId(str):
    """A job's id that knows for which run the job was handed over. Executors give it back when the run has ended."""

    run: Run
    host: ExecutorHost

    @classmethod
    def of(cls, id: str, run: Run, host: ExecutorHost) -> FireId:
        made = cls(id)
        made.run, made.host = run, host
        return made

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)  # in another process it is just an id


def _enter(run: Run, arrived: float) -> None:
    """A run that had to wait for a worker, here or in a process that gave it back, may be later by now than its job
    allows."""
    job, late = run.claim.job, run.context.clock.wall() - run.fire.due_at
    waited = bool(run.claim.fire.attempts) or run.steady() - arrived > QUEUED
    if waited and run.fire.scheduled and job.misfire == "skip" and late > job.misfire_after:
        raise TooLate
    run.enter()


def _is_process_pool(executor: Any) -> bool:
    return isinstance(getattr(executor, "_pool", None), concurrent.futures.ProcessPoolExecutor)


def _raised(event: Any) -> BaseException:
    error: BaseException = event.exception
    if error.__traceback__ is not None or not event.traceback:
        return error
    text = event.traceback + "".join(traceback.format_exception_only(error))  # from another process
    kinds = [each.__name__ for each in type(error).__mro__]
    return RaisedElsewhere(text, kinds, kinds[0], str(error))
