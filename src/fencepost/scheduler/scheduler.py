"""The public face: declare jobs, start, stop, act and look. The work is that of the parts which it is made of."""

from __future__ import annotations

import asyncio
import concurrent.futures
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fencepost.errors import ConfigurationError
from fencepost.model import Job, Json, Origin
from fencepost.replica.origins import origin_of
from fencepost.replica.replica import Replica
from fencepost.runs.bodies.command import Command
from fencepost.runs.engines import Engine
from fencepost.runs.events import Events, log_event
from fencepost.runs.importing import check_start
from fencepost.runs.resources import Resource
from fencepost.runs.tasks import Registry, Task
from fencepost.runs.tracing import current_traceparent
from fencepost.scheduler.applications import AsgiService, WsgiService, application
from fencepost.scheduler.background import Background
from fencepost.scheduler.declarations import Declarations
from fencepost.scheduler.editing import Editor
from fencepost.scheduler.fire_operations import FireOperations
from fencepost.scheduler.handlers import Handlers, checked_kinds
from fencepost.scheduler.job_operations import JobOperations
from fencepost.scheduler.lifecycle import Lifecycle
from fencepost.scheduler.notifications import Notifications
from fencepost.scheduler.operations import Operations
from fencepost.scheduler.running import run_until_signal
from fencepost.scheduler.shutdown import Shutdown
from fencepost.scheduler.single_instance import SingleInstance
from fencepost.scheduler.sync import SyncScheduler
from fencepost.scheduler.transactions import Transactions, on_commit
from fencepost.settings import Settings, redacted
from fencepost.store import forks
from fencepost.store.base import Store

if TYPE_CHECKING:
    from fencepost.model.notices import Causes
    from fencepost.notify.channel import Channel

F = TypeVar("F", bound=Callable[..., Any])

T = TypeVar("T")


class Scheduler(Operations):
    declarations_kind: type[Declarations] = Declarations
    lifecycle_kind: type[Lifecycle] = Lifecycle

    def __init__(
        self,
        store: str | Store | None = None,
        namespace: str | None = None,
        slots: int | None = None,
        *,
        single_instance: bool | SingleInstance = False,
        resources: Mapping[str, Resource] | None = None,
        engines: Mapping[str, Engine] | None = None,
        **settings: Any,
    ) -> None:
        """`store` is a URL or a store; without one `FENCEPOST_STORE` decides. `single_instance`: one process runs all
        jobs, the others stand by. `resources`: what jobs get by the name of a parameter, entered for
        each run: `{"db": open_session}`. `engines`: by the names that `executor=` gives them.
        `settings`: any other setting, such as `heartbeat="5s"`; it wins over the environment."""
        self._gate = SingleInstance() if single_instance is True else single_instance or None
        if self._gate is not None:
            settings["execute_on"] = "leader"
        if store is not None and not isinstance(store, str | Store):
            raise ConfigurationError(f'store={store!r}: give a URL such as "sqlite:///app.db", or a Store')
        url = store if isinstance(store, str) else None
        self.settings = Settings.load(store=url, namespace=namespace, slots=slots, **settings)
        self.notifications = Notifications()
        self.declared = self.declarations_kind(
            lambda: self.settings, resources or {}, engines or {}, self._gate
        )
        self.lifecycle = self.lifecycle_kind(self, store if isinstance(store, Store) else None)
        self.trace_source: Callable[[], str | None] = current_traceparent
        """The trace context of the code that triggers a job. An integration may know a better one."""
        self.fire_operations = FireOperations(self.declared, self.lifecycle, lambda: self.trace_source())
        self.job_operations = JobOperations(self.declared, self.lifecycle, lambda: self.settings)
        self.sync = SyncScheduler(self)
        self.shutdown = Shutdown(self)
        self._background = Background(self)
        self.transactions = Transactions(lambda: self.store, lambda: self.store_name)
        self._handlers = Handlers(self.lifecycle.on_host)
        self.events = Events()
        self.events.subscribe(log_event)
        self.events.subscribe(self._handlers.publish)
        self.reload: Callable[[], None] | None = None
        """Called on the host's event loop after a SIGHUP; None: SIGHUP stops gracefully."""
        forks.follow(self)

    # --- declaring ------------------------------------------------------------------------------------

    def job(
        self,
        trigger: Any,
        *,
        id: str | None = None,
        executor: str | None = None,
        engine: Mapping[str, Any] | None = None,
        **policies: Any,
    ) -> Callable[[F], F]:
        """Declare a task and its job. The function stays callable as it is.

        A coroutine runs on the event loop, a function in a thread; with `executor="process"` either runs in a process
        of its own, which is killed on timeout, cancel or fencing. With the name of an engine, as `executor="celery"`,
        its workers run it; `engine` are the engine's options.

        Policies: `args`, `overlap`, `misfire`, `misfire_after`, `retry`, `timeout`, `after_crash`,
        `crash_attempts`, `execute_on`, `spread`, `limits`; `tags`, `owner`, `description`.
        """

        calendar = self.declared.trigger(trigger)

        def declare(function: F) -> F:
            task = self.declared.task(function, id, executor, engine)
            self._declare(self.declared.job(task, task.name, calendar, policies))
            return function

        return declare

    def task(
        self,
        function: F | None = None,
        *,
        id: str | None = None,
        executor: str | None = None,
        engine: Mapping[str, Any] | None = None,
    ) -> Any:
        """Declare runnable code without a schedule: `@scheduler.task`. It can be triggered by hand."""
        if function is None:
            return lambda decorated: self.task(decorated, id=id, executor=executor, engine=engine)
        task = self.declared.task(function, id, executor, engine)
        self._declare(self.declared.without_schedule(task))
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
        task = self.registry.add(Task.of(function, id))
        self._declare(self.declared.job(task, task.name, self.declared.trigger(trigger), policies))

    def on(self, *kinds: str) -> Callable[[F], F]:
        """Call this function with every event of these kinds; without kinds, with all."""
        wanted = checked_kinds(kinds)

        def register(function: F) -> F:
            self._handlers.add(wanted, function)
            return function

        return register

    def notify(
        self,
        channel: Channel,
        *,
        on: Causes | None = None,
        jobs: str | None = None,
        quiet: str | None = None,
        digest: object = None,
    ) -> None:
        """Tell this channel of causes: `scheduler.notify(webhook(…), on=failed | recovered, jobs="tag:nightly")`.

        `on`: default what the channel is made for; `()`: only what rules made by hand ask for. `jobs`: an id, a pattern
        such as `report-*`, `tag:…` or `owner:…`; default all. `quiet`: hours in which nothing is delivered,
        `"22:00-07:00 Europe/Zurich"`. `digest`: gather notices so long for one message."""
        self.notifications.add(channel, on, jobs, quiet, digest)

    @property
    def channels(self) -> Mapping[str, Channel]:
        """Those given to `notify`, by name."""
        return self.notifications.channels

    def _declare(self, job: Job) -> None:
        self.declared.add(job)
        self.lifecycle.tell_replica(lambda replica: replica.declare([job]))

    def become(self, other: Scheduler) -> tuple[list[str], list[str], list[str]]:
        """Take the jobs of another, which was made from the same file: the ids of those that are new, changed, gone."""
        new, changed, gone = self.declared.compared_with(other.declared)
        before, after = self.declared.jobs, other.declared.jobs
        tasks = [other.registry.get(after[id].target) for id in (*new, *changed)]
        jobs = [after[id] for id in (*new, *changed)]
        targets = [before[id].target for id in gone]
        self.declared.jobs = dict(after)

        def take(replica: Replica | None) -> None:
            for task in tasks:
                self.registry.replace(task)
            for target in targets:
                self.registry.drop(target)
            if replica is not None:
                replica.declarer.withdraw([*gone, *changed])
                replica.declare(jobs)

        if not self.lifecycle.tell_replica(take):
            take(None)
        return new, changed, gone

    # --- what is declared here ----------------------------------------------------------------------------

    @property
    def registry(self) -> Registry:
        """The tasks declared here."""
        return self.declared.registry

    @property
    def jobs(self) -> Mapping[str, Job]:
        """The jobs declared here, by id."""
        return dict(self.declared.jobs)

    @property
    def job_file(self) -> Path | None:
        """The file that declares all its jobs."""
        return self.declared.job_file

    @property
    def editor(self) -> Editor:
        """Checks definitions that are made by hand, as those of code are checked."""
        return self.declared.editor

    def function_of(self, job_id: str) -> Callable[..., Any] | None:
        """What a job declared here runs."""
        return self.declared.function_of(job_id)

    def args_schema(self, task: str) -> Json:
        """JSON schema of the arguments of a task of this code; None: it is not known here."""
        return self.registry.get(task).args_schema if task in self.registry else None

    def check_args(self, task: str, args: Mapping[str, Json], what: str) -> None:
        """Raise `ConfigurationError` if they do not fit a task of this code."""
        if task in self.registry:
            self.registry.get(task).check(args, what)

    def origin_of(self, job_id: str) -> Origin | None:
        """Where the code of a job declared here is."""
        function = self.function_of(job_id)
        return None if function is None else origin_of(function, self.settings.origin)

    # --- what takes part ------------------------------------------------------------------------------------

    @property
    def store_name(self) -> str:
        """Which store, without its secrets."""
        given = self.lifecycle.given_store
        return type(given).__name__ if given else redacted(self.settings.store_url())

    @property
    def store(self) -> Store:
        """The store this scheduler uses, opened or not. It belongs to the control loop: nothing else may await
        its methods, except a process that takes no part and reads it on a loop of its own (the command line)."""
        return self.lifecycle.store

    @property
    def replica(self) -> Replica | None:
        """This process's replica, while started. It belongs to the control loop: other threads may only read it."""
        return self.lifecycle.replica

    @property
    def running_keys(self) -> tuple[str, ...]:
        """The fires that run in this process. From any thread."""
        return () if (replica := self.replica) is None else replica.runs.running_keys

    # --- life -----------------------------------------------------------------------------------------

    def check_gate(self) -> None:
        """In single-instance mode: raise if another number of workers than one is declared."""
        if self._gate is not None:
            self._gate.check()

    async def start(self) -> None:
        """Take part. Returns when the jobs are declared, or soon after if the store does not answer: then
        this replica keeps trying, and nothing runs until it succeeds."""
        await self.lifecycle.start()

    async def stop(self) -> None:
        """Claim no more, hand leadership over, let runs end within the drain limit, leave."""
        await self.lifecycle.stop()

    async def drain(self) -> None:
        """The first half of a stop, for hosts whose signals Fencepost does not get: not ready, `ready_delay`, then
        claim no more and hand leadership over. Runs go on until `stop`, or up to the drain limit."""
        await self.shutdown.drain()

    def begin_drain(self) -> concurrent.futures.Future[None] | None:
        """Claim no more, hand leadership over, and leave when the runs have ended. From any thread; once."""
        return self.lifecycle.begin_drain()

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

    def asgi(self, *, replica: bool = True, authorize: Callable[[Any], Any] | None = None) -> AsgiService:
        """API, live events, health, metrics and widget as an ASGI application, to be served or mounted:
        `app.mount("/fencepost", scheduler.asgi())`. Mounted, it needs the host's lifespan (see docs/embedding.md).

        `replica=False` serves without taking part. `authorize` is asked who may do what; without it the tokens of the
        settings decide."""
        service: AsgiService = application("asgi")(self, replica=replica, authorize=authorize)
        return service

    def wsgi(self, *, replica: bool = True, authorize: Callable[[Any], Any] | None = None) -> WsgiService:
        """The same as a WSGI application, beside `start_in_background()`. Events are polled. `authorize` gets the WSGI
        environment, on the thread of the request (see docs/synchronous-hosts.md)."""
        service: WsgiService = application("wsgi")(self, replica=replica, authorize=authorize)
        return service

    def run(self, *, seconds: float | None = None) -> None:
        """Take part until SIGTERM, SIGHUP or SIGINT, or for so many seconds. Blocks, stops gracefully, and raises
        `KeyboardInterrupt` after a SIGINT. A second SIGINT ends the process at once."""
        check_start()
        if asyncio.run(run_until_signal(self, seconds)) == signal.SIGINT:
            raise KeyboardInterrupt

    def after_fork(self) -> None:
        """In a forked child: no thread came along, and the parent's replica is not ours. It can be started."""
        self.shutdown.forget_parent()
        self._background.after_fork()
        self.transactions.after_fork()
        self.lifecycle.after_fork()

    # --- acting: what can be awaited is in operations.py -----------------------------------------------------

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
        fire = self.fire_operations.new_fire(what, args, idempotency_key, if_active)
        name = fire.key.partition("!")[2]
        call = partial(self.sync.trigger, fire.job_id, args=args, idempotency_key=name, if_active=if_active)
        on_commit(connection, call)
        return fire.key
