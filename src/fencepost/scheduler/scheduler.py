"""The public face: declare jobs, start, stop, and act on them from any thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import logging
import signal
import threading
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from fencepost.clock import Clock, SystemClock
from fencepost.errors import (
    ConfigurationError,
    StoreUnavailable,
    StoreUnusable,
    UsageError,
    missing_extra,
)
from fencepost.insight.fires import checked_limit, checked_moment, find_fires, states_of
from fencepost.insight.jobs import JobView, find_jobs
from fencepost.insight.reader import Reader
from fencepost.insight.why import Answer, answer
from fencepost.model import (
    FireRecord,
    Job,
    JobRecord,
    Json,
    Origin,
    State,
    checked_id,
    integrations,
    repeating,
)
from fencepost.model.values import clean_text
from fencepost.replica.control import ControlThread
from fencepost.replica.origins import origin_of
from fencepost.replica.replica import Identity, Replica
from fencepost.runs.bodies.command import Command
from fencepost.runs.events import OTHER_EVENTS, RUN_EVENTS, Event, Events, log_event
from fencepost.runs.host import ClosableHost, ThreadedHost
from fencepost.runs.importing import check_start
from fencepost.runs.recurring import RecurringErrors
from fencepost.runs.resources import Resource, checked_resources
from fencepost.runs.run import Host
from fencepost.runs.tasks import Registry, Task, checked_args
from fencepost.scheduler.background import Background
from fencepost.scheduler.declare import as_trigger, declared_job, default_policies
from fencepost.scheduler.garbage import short_collections
from fencepost.scheduler.handle import Handle, SyncScheduler
from fencepost.scheduler.manual import add_manual, check_retry, new_key
from fencepost.scheduler.shutdown import Shutdown
from fencepost.scheduler.signals import end_at_once, on_hangup, tell_stopping
from fencepost.scheduler.single_instance import SingleInstance
from fencepost.scheduler.transactions import Transactions, on_commit
from fencepost.settings import Settings, did_you_mean, redacted
from fencepost.store import forks
from fencepost.store.base import ChangeJob, FireQuery, NewFire, PutJob, Store
from fencepost.store.urls import store_from_url

log = logging.getLogger("fencepost")

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

NOTE_LIMIT = 500
"""Characters kept of a pause's reason, and of the name of the caller."""
PATIENCE_AT_START = 2.0
"""Seconds a start waits for the store. A host must come up although the store is down."""


class Service(Protocol):
    """What `Scheduler.asgi` returns: an ASGI application."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...

    def lifespan(self, app: object) -> AbstractAsyncContextManager[None]:
        """For the application it is mounted in."""

    def reload(self) -> None:
        """Read the file of tokens again."""


class WsgiService(Protocol):
    """What `Scheduler.wsgi` returns: a WSGI application."""

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]: ...

    def answer(self, environ: Any) -> Any:
        """`status`, `headers` and `body`, for frameworks with responses of their own."""

    def reload(self) -> None:
        """Read the file of tokens again."""


class Scheduler:
    def __init__(
        self,
        store: str | Store | None = None,
        namespace: str | None = None,
        slots: int | None = None,
        *,
        single_instance: bool | SingleInstance = False,
        resources: Mapping[str, Resource] | None = None,
        **settings: Any,
    ) -> None:
        """`store` is a URL or a store; without one `FENCEPOST_STORE` decides. `single_instance`: one process runs all
        jobs, the others stand by. `resources`: what jobs get by the name of a parameter, entered for
        each run: `{"db": open_session}`. `settings`: any other setting, such as `heartbeat="5s"`; it wins
        over the environment."""
        self._gate = SingleInstance() if single_instance is True else single_instance or None
        if self._gate is not None:
            settings["execute_on"] = "leader"
        if store is not None and not isinstance(store, str | Store):
            raise ConfigurationError(f'store={store!r}: give a URL such as "sqlite:///app.db", or a Store')
        url = store if isinstance(store, str) else None
        self.settings = Settings.load(store=url, namespace=namespace, slots=slots, **settings)
        self._given_store = store if isinstance(store, Store) else None
        self.events = Events()
        self.events.subscribe(log_event)
        self.events.subscribe(self._hand_to_handlers)
        self.sync = SyncScheduler(self)
        self.reader = Reader(self)
        self.shutdown = Shutdown(self)
        self._background = Background(self)
        self.transactions = Transactions(self._open_store, lambda: self.store_name)
        self._resources = checked_resources(resources or {})
        self.job_file: Path | None = None
        """The file that declares all its jobs."""
        self._registry = Registry()
        self._jobs: dict[str, Job] = {}
        self._errors = RecurringErrors(log)
        self._handlers: list[tuple[tuple[str, ...], Callable[[Event], Any]]] = []
        self._lock = threading.Lock()
        self._control: ControlThread | None = None
        self._store: Store | None = None
        self._replica: Replica | None = None
        self._host: ClosableHost | None = None
        self._host_loop: asyncio.AbstractEventLoop | None = None
        self._draining: concurrent.futures.Future[None] | None = None
        self._inline = False
        self._store_watchers: list[Callable[[Store], None]] = []
        self.reload: Callable[[], None] | None = None
        """Called on the host's event loop after a SIGHUP; None: SIGHUP stops gracefully."""
        forks.follow(self)

    # --- declaring ------------------------------------------------------------------------------------

    def job(
        self, trigger: Any, *, id: str | None = None, executor: str | None = None, **policies: Any
    ) -> Callable[[F], F]:
        """Declare a task and its job. The function stays callable as it is.

        A coroutine runs on the event loop, a function in a thread; with `executor="process"` either runs in a process
        of its own, which is killed on timeout, cancel or fencing.

        Policies: `args`, `overlap`, `misfire`, `misfire_after`, `retry`, `timeout`, `after_crash`,
        `crash_attempts`, `execute_on`.
        """

        calendar = as_trigger(trigger)

        def declare(function: F) -> F:
            task = self._registry.add(Task.of(function, id, executor, self._resources))
            self._declare(self._job(task, task.name, calendar, policies))
            return function

        return declare

    def task(self, function: F | None = None, *, id: str | None = None, executor: str | None = None) -> Any:
        """Declare runnable code without a schedule: `@scheduler.task`. It can be triggered by hand."""
        if function is None:
            return lambda decorated: self.task(decorated, id=id, executor=executor)
        task = self._registry.add(Task.of(function, id, executor, self._resources))
        policies = {"execute_on": self.settings.execute_on, **default_policies(task)}
        self._declare(Job(task.name, task.name, **policies))
        return function

    def command(
        self,
        command: str | Sequence[str],
        trigger: Any,
        *,
        id: str,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        **policies: Any,
    ) -> None:
        """Run a command on a schedule: a list of words, or one text with `shell=True`. It fails if its exit code is
        not 0. It finds its fire in `FIRE_KEY`, `FIRE_TOKEN`, `FIRE_ARGS` and others (see docs/execution.md)."""
        file = "" if self.job_file is None else str(self.job_file)
        function = Command.of(command, shell=shell, env=env, cwd=cwd, file=file)
        task = self._registry.add(Task.of(function, id))
        self._declare(self._job(task, task.name, as_trigger(trigger), policies))

    def on(self, *kinds: str) -> Callable[[F], F]:
        """Call this function with every event of these kinds; without kinds, with all."""
        for kind in kinds:
            if not isinstance(kind, str):
                raise ConfigurationError(
                    'name the events: @scheduler.on("failed", "lost"), or @scheduler.on()'
                )
            if kind not in RUN_EVENTS + OTHER_EVENTS:
                hint = did_you_mean(kind, RUN_EVENTS + OTHER_EVENTS)
                raise ConfigurationError(f"there is no event {kind!r}{hint}")

        def register(function: F) -> F:
            self._handlers.append((kinds, function))
            return function

        return register

    @property
    def jobs(self) -> Mapping[str, Job]:
        """The jobs declared here, by id."""
        return dict(self._jobs)

    def function_of(self, job_id: str) -> Callable[..., Any] | None:
        """What a job declared here runs."""
        job = self._jobs.get(job_id)
        return None if job is None else self._registry.get(job.target).function

    def origin_of(self, job_id: str) -> Origin | None:
        """Where the code of a job declared here is."""
        function = self.function_of(job_id)
        return None if function is None else origin_of(function, self.settings.origin)

    @property
    def store_name(self) -> str:
        """Which store, without its secrets."""
        return type(self._given_store).__name__ if self._given_store else redacted(self.settings.store_url())

    @property
    def store(self) -> Store:
        """The store this scheduler uses, opened or not. It belongs to the control loop: nothing else may await
        its methods, except a process that takes no part and reads it on a loop of its own (the command line)."""
        return self._open_store()

    @property
    def replica(self) -> Replica | None:
        """This process's replica, while started. It belongs to the control loop: other threads may only read it."""
        return self._replica

    @property
    def running_keys(self) -> tuple[str, ...]:
        """The fires that run in this process. From any thread."""
        return self._replica.runs.running_keys if self._replica is not None else ()

    def only(self, task: str) -> None:
        """Take part for this task alone (`fencepost trigger --here`). Before the start."""
        known = self._registry.get(task)
        self._registry = Registry()
        self._registry.add(known)
        self._jobs = {id: job for id, job in self._jobs.items() if job.target == task}

    def withdraw(self, ids: Iterable[str]) -> None:
        """Take declarations back, as if they had never been made. Before the start."""
        for id in ids:
            self._registry.drop(self._jobs.pop(id).target)

    def become(self, other: Scheduler) -> tuple[list[str], list[str], list[str]]:
        """Take the jobs of another, which was made from the same file: the ids of those that are new, changed, gone."""
        before, after = self._jobs, other._jobs
        new = [id for id in after if id not in before]
        gone = [id for id in before if id not in after]
        kept = [id for id in after if id in before]
        changed = [
            id for id in kept if (before[id], self.function_of(id)) != (after[id], other.function_of(id))
        ]
        self._jobs = dict(after)
        tasks = [other._registry.get(after[id].target) for id in (*new, *changed)]
        jobs = [after[id] for id in (*new, *changed)]
        targets = [before[id].target for id in gone]

        def take() -> None:
            for task in tasks:
                self._registry.replace(task)
            for target in targets:
                self._registry.drop(target)
            if self._replica is not None:
                self._replica.declarer.withdraw([*gone, *changed])
                self._replica.declare(jobs)

        if self._control is None:
            take()
        else:
            self._control.loop.call_soon_threadsafe(take)
        return new, changed, gone

    # --- life -----------------------------------------------------------------------------------------

    def check_gate(self) -> None:
        """In single-instance mode: raise if another number of workers than one is declared."""
        if self._gate is not None:
            self._gate.check()

    async def start(self) -> None:
        """Take part. Returns when the jobs are declared, or soon after if the store does not answer: then
        this replica keeps trying, and nothing runs until it succeeds."""
        check_start()
        if self._replica is not None:
            raise UsageError("this scheduler has been started; stop it first")
        self.check_gate()
        self.shutdown.install()
        self._host_loop = asyncio.get_running_loop()
        try:
            ready = self._take_part(ThreadedHost(self._host_loop, self.settings.slots))
            await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(ready)), PATIENCE_AT_START)
        except TimeoutError:
            log.warning("still registering: the store is slow or does not answer; nothing runs until it does")
            ready.add_done_callback(_log_failure)
        except BaseException:
            self.shutdown.uninstall()
            raise

    async def stop(self) -> None:
        """Claim no more, hand leadership over, let runs end within the drain limit, leave."""
        self.shutdown.uninstall()
        if self._control is None:
            return
        if (drained := self.begin_drain()) is not None:
            await asyncio.wrap_future(drained)
        await asyncio.get_running_loop().run_in_executor(None, self._end)

    async def drain(self) -> None:
        """The first half of a stop, for hosts whose signals Fencepost does not get: not ready, `ready_delay`, then
        claim no more and hand leadership over. Runs go on until `stop`, or up to the drain limit."""
        await self.shutdown.drain()

    def begin_drain(self) -> concurrent.futures.Future[None] | None:
        """Claim no more, hand leadership over, and leave when the runs have ended. From any thread; once."""
        with self._lock:
            if self._draining is None and self._replica is not None and self._control is not None:
                self._draining = self._control.submit(self._replica.drain())
            return self._draining

    async def __aenter__(self) -> Scheduler:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @asynccontextmanager
    async def lifespan(self, app: object) -> AsyncIterator[None]:
        """`app = FastAPI(lifespan=scheduler.lifespan)`"""
        async with self:
            yield

    def start_in_background(self) -> None:
        """Take part in a host without an event loop, such as Flask or a script: coroutine jobs run on a loop of ours,
        in a thread. Returns when `start` would; once started, does nothing. At exit it is stopped, which drains. A
        forked child starts its own when it first uses the scheduler."""
        self._background.start()

    def stop_in_background(self) -> None:
        """`stop`, for what `start_in_background` started; else nothing. Blocks for as long as runs drain."""
        self._background.stop()

    def start_if_forked(self) -> None:
        """In a forked child: start what the parent had started in the background, unless that is done. Every use of the
        scheduler does this."""
        self._background.start_if_forked()

    @contextmanager
    def background(self) -> Iterator[Scheduler]:
        """`with scheduler.background():` takes part inside of it."""
        self.start_in_background()
        try:
            yield self
        finally:
            self.stop_in_background()

    def asgi(self, *, replica: bool = True, authorize: Callable[[Any], Any] | None = None) -> Service:
        """API, live events, health, metrics and widget as an ASGI application, to be served or mounted:
        `app.mount("/fencepost", scheduler.asgi())`. Mounted, it needs the host's lifespan (see docs/embedding.md).

        `replica=False` serves without taking part. `authorize` is asked who may do what; without it the tokens of the
        settings decide."""
        service: Service = _application("asgi")(self, replica=replica, authorize=authorize)
        return service

    def wsgi(self, *, replica: bool = True, authorize: Callable[[Any], Any] | None = None) -> WsgiService:
        """The same as a WSGI application, beside `start_in_background()`. Events are polled. `authorize` gets the WSGI
        environment, on the thread of the request (see docs/synchronous-hosts.md)."""
        service: WsgiService = _application("wsgi")(self, replica=replica, authorize=authorize)
        return service

    def run(self, *, seconds: float | None = None) -> None:
        """Take part until SIGTERM, SIGHUP or SIGINT, or for so many seconds. Blocks, stops gracefully, and raises
        `KeyboardInterrupt` after a SIGINT. A second SIGINT ends the process at once."""
        check_start()
        if asyncio.run(self._run(seconds)) == signal.SIGINT:
            raise KeyboardInterrupt

    async def _run(self, seconds: float | None) -> int | None:
        loop = asyncio.get_running_loop()
        stop: asyncio.Future[int | None] = loop.create_future()

        def end(number: int | None = None) -> None:
            if not stop.done():
                if number is not None:
                    tell_stopping(number)
                stop.set_result(number)
            elif number == signal.SIGINT:
                end_at_once(self.running_keys)

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, end, number)
        on_hangup(loop, self.reload, partial(end, signal.SIGHUP))
        async with self:
            with short_collections():
                if seconds is not None:
                    loop.call_later(seconds, end)
                return await stop

    # --- acting on jobs and fires -----------------------------------------------------------------------

    async def trigger(
        self,
        what: Callable[..., Any] | str,
        *,
        args: Mapping[str, Json] | None = None,
        idempotency_key: str | None = None,
        if_active: str = "queue",
        connection: Any = None,
    ) -> Handle:
        """Run a job now, on whichever replica has room. With `if_active="refuse"` an active run raises
        `AnotherRunIsActive`; the same `idempotency_key` adds one fire however often it is sent. With a `connection` of
        yours to the store's database the fire is committed with your transaction, or not at all
        (docs/transactions.md)."""
        if connection is not None:
            fire = self.new_fire(what, args, idempotency_key, if_active)
            await self.transactions.write_async(connection, fire)
            return Handle(self, fire.key, fire.job_id, is_asked_for=True)
        return await self.ask(
            self.do_trigger(what, args=args, idempotency_key=idempotency_key, if_active=if_active)
        )

    def trigger_on_commit(
        self,
        what: Callable[..., Any] | str,
        *,
        connection: Any,
        args: Mapping[str, Json] | None = None,
        idempotency_key: str | None = None,
        if_active: str = "queue",
    ) -> str:
        """For a database that is not the store's: trigger once the caller's transaction is committed. Returns the key
        of the fire. `connection`: of Django, or a Session of SQLAlchemy. A process that dies right after the commit
        triggers nothing."""
        fire = self.new_fire(what, args, idempotency_key, if_active)
        name = fire.key.partition("!")[2]
        call = partial(self.sync.trigger, fire.job_id, args=args, idempotency_key=name, if_active=if_active)
        on_commit(connection, call)
        return fire.key

    async def retry(self, key: str, *, again: bool = False, idempotency_key: str | None = None) -> Handle:
        """Run what the fire `key` ran once more, with its due time. Fenced effects that it has committed do not happen
        twice. A fire that has succeeded needs `again=True`: then they happen once more."""
        return await self.ask(self.do_retry(key, again=again, idempotency_key=idempotency_key))

    async def add(
        self, what: Callable[..., Any] | str, trigger: Any, *, id: str, replace: bool = False, **policies: Any
    ) -> None:
        """Add a job at run time. With `replace` it may take the place of one with the same id, also of one that code
        declares: then it holds until it is removed, or the code declares the same (docs/dynamic-jobs.md)."""
        await self.ask(self.do_add(what, trigger, id=id, replace=replace, **policies))

    async def remove(self, what: Callable[..., Any] | str) -> None:
        await self.ask(self.do_change(what, "remove"))

    async def pause(
        self, what: Callable[..., Any] | str, *, reason: str = "", until: datetime | None = None
    ) -> None:
        """Durable: due fires are recorded as skipped until resumed, or until `until`."""
        await self.ask(self.do_change(what, "pause", reason, until))

    async def resume(self, what: Callable[..., Any] | str) -> None:
        await self.ask(self.do_change(what, "resume"))

    async def cancel(self, key: str) -> FireRecord:
        return await self.ask(self.do_cancel(key))

    # --- reading --------------------------------------------------------------------------------------

    async def find_jobs(self) -> tuple[JobView, ...]:
        """All jobs of the store, by id: those of this code, of others, and those added at run time."""
        return await self.reader.ask(find_jobs)

    async def find_fires(
        self,
        job: Callable[..., Any] | str | None = None,
        state: str | Iterable[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        *,
        planned: bool = False,
    ) -> tuple[FireRecord, ...]:
        """The ledger, newest first. `since` and `until` choose by due time. Fires that are planned and not due yet are
        left out, unless `planned`, `until` or `state="pending"` asks for them."""
        return await self.reader.ask(self.fires_look(job, state, since, until, limit, planned))

    async def why(self, job: Callable[..., Any] | str, at: datetime | str | None = None) -> Answer:
        """What became of the fire of that moment (`"03:00"`, an ISO time, or a datetime), or of the latest one."""
        return await self.reader.ask(self.why_look(job, at))

    # The same, on the control loop; `sync` calls these too.

    async def do_trigger(
        self,
        what: Callable[..., Any] | str,
        *,
        args: Mapping[str, Json] | None = None,
        idempotency_key: str | None = None,
        if_active: str = "queue",
        by: str = "",
        repeats: Mapping[str, Json] | None = None,
    ) -> Handle:
        new = self.new_fire(what, args, idempotency_key, if_active, by, repeats)
        await add_manual(await self._ready_store(), new, self._jobs)
        return Handle(self, new.key, new.job_id)

    def new_fire(
        self,
        what: Callable[..., Any] | str,
        args: Mapping[str, Json] | None = None,
        idempotency_key: str | None = None,
        if_active: str = "queue",
        by: str = "",
        repeats: Mapping[str, Json] | None = None,
    ) -> NewFire:
        """The checked request."""
        if if_active not in ("queue", "refuse"):
            raise ConfigurationError(f'if_active={if_active!r} is not known; use "queue" or "refuse"')
        job_id = self._id_of(what)
        declared = self._jobs.get(job_id)
        if declared is not None:
            task = self._registry.get(declared.target)
            task.check(declared.args if args is None else args, f"a fire of {job_id}")
        key = new_key(job_id, idempotency_key)
        if args is not None:
            args = checked_args(args, f"a fire of {job_id}")
        return NewFire(key, job_id, args, if_active, clean_text(by, NOTE_LIMIT), repeats)  # type: ignore[arg-type]

    async def do_retry(
        self, key: str, *, again: bool = False, idempotency_key: str | None = None, by: str = ""
    ) -> Handle:
        fire = await self.do_find(key)
        if fire is None:
            raise UsageError(f"there is no fire {key!r}")
        check_retry(fire, again)
        repeats = repeating(fire, again=again)
        return await self.do_trigger(
            fire.job_id, args=fire.args, idempotency_key=idempotency_key, by=by, repeats=repeats
        )

    async def do_add(
        self,
        what: Callable[..., Any] | str,
        trigger: Any,
        *,
        id: str,
        replace: bool = False,
        by: str = "",
        **policies: Any,
    ) -> None:
        task = self._registry.find(what) if callable(what) else self._registry.get(what)
        if task is None:
            raise UsageError(f"{what!r} is not a task of this scheduler; decorate it with @scheduler.task")
        job = self._job(task, checked_id(id, "job id"), trigger, policies)
        store = await self._ready_store()
        new = PutJob(job, self.settings.revision, clean_text(by, NOTE_LIMIT), replace, source="api")
        [put] = await store.put_jobs([new])
        if put.outcome == "exists":
            raise UsageError(f"job {id!r} is there already and differs; pass replace=True")
        if put.refused:
            raise UsageError(
                f"job {id!r} was not replaced: {put.outcome}, a live replica has a newer definition"
            )

    async def do_change(
        self,
        what: Callable[..., Any] | str,
        kind: str,
        reason: str = "",
        until: datetime | None = None,
        by: str = "",
    ) -> JobRecord:
        if until is not None and until.tzinfo is None:
            raise ConfigurationError(f"until={until} has no time zone; give it one (tzinfo=…)")
        store, job_id = await self._ready_store(), self._id_of(what)
        reason, by = clean_text(reason, NOTE_LIMIT), clean_text(by, NOTE_LIMIT)
        record = await store.change_job(ChangeJob(job_id, kind, reason, by, until))  # type: ignore[arg-type]
        if record is None:
            raise UsageError(f"there is no job {job_id!r} in the store{did_you_mean(job_id, self._jobs)}")
        return record

    async def do_cancel(self, key: str, by: str = "", dead_token: int | None = None) -> FireRecord:
        """`dead_token`: of the run whose replica a person declares dead (see `Store.cancel_fire`)."""
        store = await self._ready_store()
        fire = await store.cancel_fire(key, clean_text(by, NOTE_LIMIT), dead_token)
        if fire is None:
            raise UsageError(f"there is no fire {key!r}")
        if fire.state is State.PENDING and fire.scheduled:
            raise UsageError(f"{key} is not due yet; pause its job to keep it from running")
        return fire

    async def do_look(self, look: Callable[[Store], Awaitable[T]]) -> T:
        """Run `look` with the open store, on the control loop. For requests that have no method of their own."""
        return await look(await self._ready_store())

    def fires_look(
        self,
        job: Callable[..., Any] | str | None,
        state: str | Iterable[str] | None,
        since: datetime | None,
        until: datetime | None,
        limit: int,
        planned: bool,
    ) -> Callable[[Store], Coroutine[Any, Any, tuple[FireRecord, ...]]]:
        return partial(
            find_fires,
            job=None if job is None else self._id_of(job),
            states=states_of(state),
            since=checked_moment(since, "since"),
            until=checked_moment(until, "until"),
            limit=checked_limit(limit),
            planned=planned,
        )

    def why_look(
        self, job: Callable[..., Any] | str, at: datetime | str | None
    ) -> Callable[[Store], Coroutine[Any, Any, Answer]]:
        if isinstance(at, datetime):
            checked_moment(at, "at")
        return partial(answer, job_id=self._id_of(job), at=at, retention=self.settings.retention)

    async def do_find(self, key: str) -> FireRecord | None:
        found = await (await self._ready_store()).find_fires(FireQuery(key=key))
        return found[0] if found else None

    # --- wiring -----------------------------------------------------------------------------------------

    def replica_on(
        self,
        store: Store,
        clock: Clock,
        host: Host,
        identity: Identity | None = None,
        inline: bool = False,
    ) -> Replica:
        """A replica of this scheduler's jobs. For `start`, and for tests that own the time: there the
        caller's loop is the control loop as well (`inline`)."""
        self._inline = inline
        self._replica = Replica(
            store=store,
            clock=clock,
            settings=self.settings,
            registry=self._registry,
            host=host,
            identity=identity or Identity.here(),
            jobs=list(self._jobs.values()),
            job_file=self.job_file,
            events=self.events,
        )
        self._store = store
        return self._replica

    def watch_store(self, watch: Callable[[Store], None]) -> None:
        """Call `watch` with the store, now if there is one, and whenever one is made."""
        self._store_watchers.append(watch)
        if self._store is not None:
            watch(self._store)

    def show_store(self, store: Store) -> None:
        """Call the functions given to `watch_store` with this store."""
        for watch in self._store_watchers:
            watch(store)

    @property
    def is_inline(self) -> bool:
        """Whether a test owns the time, and the caller's loop is the only one."""
        return self._inline

    def forget_replica(self) -> None:
        self._replica = self._store = None
        self._inline = False

    async def ask(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it on the control loop and await it here."""
        if self._inline:
            return await work
        return await asyncio.wrap_future(self.control_thread().submit(work))

    def ask_blocking(self, work: Coroutine[Any, Any, T], patience: float | None = None) -> T:
        """Run it on the control loop and wait for it, so many seconds at the most."""
        asked = self.control_thread().submit(work)
        try:
            return asked.result(patience)
        except TimeoutError:
            asked.cancel()
            raise

    def ask_host(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it on the event loop that coroutine jobs run on, and wait for it. From any other thread."""
        if self._replica is None or self._host_loop is None:
            work.close()
            raise UsageError("this scheduler has not been started; call start_in_background() first")
        return asyncio.run_coroutine_threadsafe(work, self._host_loop).result()

    def after_fork(self) -> None:
        """In a forked child: no thread came along, and the parent's replica is not ours. It can be started."""
        self._lock = threading.Lock()
        self._control = self._host = self._host_loop = self._draining = None
        self.shutdown.forget_parent()
        self._background.after_fork()
        self.transactions.after_fork()
        self.reader = Reader(self)
        self.forget_replica()

    def control_thread(self) -> ControlThread:
        """The control thread, started on first use."""
        self.start_if_forked()
        with self._lock:
            if self._control is None:
                self._control = ControlThread()
            return self._control

    def _open_store(self) -> Store:
        with self._lock:
            if self._store is None:
                self._store = self._given_store or store_from_url(
                    self.settings.store_url(), self.settings.namespace
                )
                self.show_store(self._store)
            return self._store

    def _take_part(self, host: ClosableHost) -> concurrent.futures.Future[None]:
        """With bodies on this host. Done when the jobs are declared."""
        check_start()
        self._registry.check_installed()
        self._host = host
        for warning in self.settings.warnings():
            log.warning("%s", warning)
        store = self._open_store()
        if not store.shared:
            log.warning("this store is not shared: other processes would run every job as well")
        return self.control_thread().submit(self._bring_up(store, host))

    def _end(self) -> None:
        """Close the store and end the control thread, after `begin_drain`. Blocks for a moment."""
        control, host, store = self._control, self._host, self._store
        if control is None:
            return
        self.reader.close()
        if store is not None and store is not self._given_store:
            control.submit(store.close()).result()
        if host is not None:
            host.close()
        control.stop()
        self._control = self._host = self._draining = None
        self.forget_replica()

    async def _bring_up(self, store: Store, host: Host) -> None:
        failures = 0
        replica = self.replica_on(store, SystemClock(), host)
        while True:
            try:
                await store.open()
                break
            except StoreUnusable:
                raise
            except StoreUnavailable as error:
                failures += 1
                replica.store_failed(error)
                await asyncio.sleep(replica.backoff(failures))
        replica.begin()
        await replica.ready()

    async def _ready_store(self) -> Store:
        if self._replica is not None:
            await self._replica.ready()
            return self._replica.store
        store = self._open_store()
        await store.open()
        return store

    def _hand_to_handlers(self, event: Event) -> None:
        if self._inline:
            self._call_handlers(event)
        elif self._handlers and self._host_loop is not None and not self._host_loop.is_closed():
            self._host_loop.call_soon_threadsafe(self._call_handlers, event)

    def _call_handlers(self, event: Event) -> None:
        for kinds, handler in self._handlers:
            if kinds and event.kind not in kinds:
                continue
            try:
                result = handler(event)
            except Exception as error:
                self._handler_failed(handler, error)
                continue
            if inspect.iscoroutine(result):
                asyncio.ensure_future(result).add_done_callback(partial(self._handler_ended, handler))

    def _handler_ended(self, handler: Callable[[Event], Any], task: asyncio.Future[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._handler_failed(handler, error)

    def _handler_failed(self, handler: Callable[[Event], Any], error: BaseException) -> None:
        self._errors.log(f"the handler {getattr(handler, '__qualname__', handler)} failed", error)

    def _declare(self, job: Job) -> None:
        if job.id in self._jobs:
            raise ConfigurationError(f"job {job.id!r} is declared twice; give one of them another id=")
        self._jobs[job.id] = job
        replica = self._replica
        if replica is not None and self._control is not None:
            self._control.loop.call_soon_threadsafe(replica.declare, [job])

    def _job(self, task: Task, id: str, trigger: Any, policies: Mapping[str, Any]) -> Job:
        if self._gate is not None and policies.get("execute_on", "leader") != "leader":
            raise ConfigurationError(
                f"job {id}: with single_instance all jobs run on the leader; leave out execute_on"
            )
        defaults = {"execute_on": self.settings.execute_on, **default_policies(task)}
        return declared_job(task, id, trigger, {**defaults, **policies})

    def _id_of(self, what: Callable[..., Any] | str) -> str:
        if isinstance(what, str):
            return checked_id(what, "job id")
        task = self._registry.find(what)
        if task is None:
            raise UsageError(f"{what!r} is not a job of this scheduler; decorate it, or give the job's id")
        return task.name


def _application(kind: str) -> Callable[..., Any]:
    try:
        found: Callable[..., Any] = integrations.load("fencepost.applications", kind)
    except ModuleNotFoundError as error:
        raise missing_extra("the service", error, "web") from None
    return found


def _log_failure(task: asyncio.Future[Any] | concurrent.futures.Future[Any]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("a task of the scheduler failed", exc_info=task.exception())
