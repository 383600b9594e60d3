"""Starting and stopping: the control thread, the store, the replica and the host, and who may ask them what."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from fencepost.clock import Clock, SystemClock
from fencepost.errors import StoreUnavailable, StoreUnusable, UsageError, missing_extra
from fencepost.insight.reader import Reader
from fencepost.model import integrations
from fencepost.replica.control import ControlThread
from fencepost.replica.replica import Identity, Replica
from fencepost.runs.host import ClosableHost, ThreadedHost
from fencepost.runs.importing import check_start
from fencepost.runs.run import Host
from fencepost.store.base import Store
from fencepost.store.urls import store_from_url

if TYPE_CHECKING:
    from fencepost.scheduler.scheduler import Scheduler

log = logging.getLogger("fencepost")

T = TypeVar("T")

PATIENCE_AT_START = 2.0
"""Seconds a start waits for the store. A host must come up although the store is down."""


class Lifecycle:
    """One per scheduler. All operations on the store go through here: on the control loop, with the store open."""

    def __init__(self, scheduler: Scheduler, store: Store | None) -> None:
        """`store`: given by the user, who also closes it."""
        self._scheduler = scheduler
        self._given_store = store
        self._lock = threading.Lock()
        self._control: ControlThread | None = None
        self._store: Store | None = None
        self._replica: Replica | None = None
        self._host: ClosableHost | None = None
        self._host_loop: asyncio.AbstractEventLoop | None = None
        self._draining: concurrent.futures.Future[None] | None = None
        self._inline = False
        self._store_watchers: list[Callable[[Store], None]] = []
        self._telemetry = scheduler.settings.telemetry
        self.reader = Reader(self)

    # --- starting and stopping ------------------------------------------------------------------------

    async def start(self) -> None:
        check_start()
        if self._replica is not None:
            raise UsageError("this scheduler has been started; stop it first")
        self._scheduler.check_gate()
        shutdown = self._scheduler.shutdown
        shutdown.install()
        self._host_loop = asyncio.get_running_loop()
        try:
            ready = self.take_part(ThreadedHost(self._host_loop, self._scheduler.settings.slots))
            await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(ready)), PATIENCE_AT_START)
        except TimeoutError:
            log.warning("still registering: the store is slow or does not answer; nothing runs until it does")
            ready.add_done_callback(_log_failure)
        except BaseException:
            shutdown.uninstall()
            raise

    async def stop(self) -> None:
        self._scheduler.shutdown.uninstall()
        if self._control is None:
            return
        if (drained := self.begin_drain()) is not None:
            await asyncio.wrap_future(drained)
        await asyncio.get_running_loop().run_in_executor(None, self.end)

    def begin_drain(self) -> concurrent.futures.Future[None] | None:
        """Claim no more, hand leadership over, and leave when the runs have ended. From any thread; once."""
        with self._lock:
            if self._draining is None and self._replica is not None and self._control is not None:
                self._draining = self._control.submit(self._replica.drain())
            return self._draining

    def take_part(self, host: ClosableHost) -> concurrent.futures.Future[None]:
        """With bodies on this host. Done when the jobs are declared."""
        check_start()
        self._scheduler.registry.check_installed()
        self._host = host
        self._instrument()
        for warning in self._scheduler.settings.warnings():
            log.warning("%s", warning)
        store = self.store
        if not store.shared:
            log.warning("this store is not shared: other processes would run every job as well")
        return self.control_thread().submit(self._bring_up(store, host))

    def end(self) -> None:
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

    def after_fork(self) -> None:
        """In a forked child: no thread came along, and the parent's replica is not ours. It can be started."""
        self._lock = threading.Lock()
        self._control = self._host = self._host_loop = self._draining = None
        self.reader = Reader(self)
        self.forget_replica()

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
        scheduler = self._scheduler
        self._inline = inline
        self._replica = Replica(
            store=store,
            clock=clock,
            settings=scheduler.settings,
            registry=scheduler.registry,
            host=host,
            identity=identity or Identity.here(),
            jobs=list(scheduler.jobs.values()),
            job_file=scheduler.job_file,
            events=scheduler.events,
            engines=scheduler.declared.used_engines(inline),
            notify=scheduler.notifications.subscriptions(),
            inline=inline,
        )
        self._store = store
        return self._replica

    def forget_replica(self) -> None:
        self._replica = self._store = None
        self._inline = False

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

    def _instrument(self) -> None:
        """As the settings ask for, once."""
        name, self._telemetry = self._telemetry, "off"
        if name != "off":
            try:
                integrations.load("fencepost.telemetry", name)(self._scheduler)
            except ModuleNotFoundError as error:
                raise missing_extra(f"telemetry={name}", error, name) from None

    # --- what there is ----------------------------------------------------------------------------------

    @property
    def given_store(self) -> Store | None:
        """The store object that the user gave, if it was no URL."""
        return self._given_store

    @property
    def store(self) -> Store:
        """Made on first use; opened or not."""
        with self._lock:
            if self._store is None:
                settings = self._scheduler.settings
                self._store = self._given_store or store_from_url(settings.store_url(), settings.namespace)
                self.show_store(self._store)
            return self._store

    @property
    def replica(self) -> Replica | None:
        return self._replica

    @property
    def host(self) -> ClosableHost | None:
        """Where bodies run, while started."""
        return self._host

    @property
    def is_inline(self) -> bool:
        """Whether a test owns the time, and the caller's loop is the only one."""
        return self._inline

    def watch_store(self, watch: Callable[[Store], None]) -> None:
        """Call `watch` with the store, now if there is one, and whenever one is made."""
        self._store_watchers.append(watch)
        if self._store is not None:
            watch(self._store)

    def show_store(self, store: Store) -> None:
        """Call the functions given to `watch_store` with this store."""
        for watch in self._store_watchers:
            watch(store)

    def control_thread(self) -> ControlThread:
        """The control thread, started on first use."""
        self._scheduler.start_if_forked()
        with self._lock:
            if self._control is None:
                self._control = ControlThread()
            return self._control

    # --- asking -----------------------------------------------------------------------------------------

    async def ask(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it on the control loop and await it here."""
        if self._inline:
            return await work
        control = self.control_thread()
        return await (work if control.is_current else asyncio.wrap_future(control.submit(work)))

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

    def tell_replica(self, call: Callable[[Replica], None]) -> bool:
        """Call it with the replica on the control loop, soon; False: none has been started."""
        replica, control = self._replica, self._control
        if replica is None or control is None:
            return False
        control.loop.call_soon_threadsafe(call, replica)
        return True

    def on_host(self, call: Callable[[], None]) -> None:
        """Call it on the event loop that coroutine jobs run on, soon; not at all before the start."""
        if self._inline:
            call()
        elif self._host_loop is not None and not self._host_loop.is_closed():
            self._host_loop.call_soon_threadsafe(call)

    async def with_store(self, work: Callable[[Store], Awaitable[T]]) -> T:
        """Run `work` with the open store, on the control loop. For requests that have no method of their own."""
        return await work(await self.ready_store())

    async def ready_store(self) -> Store:
        """The open store; once started, when the jobs are declared. On the control loop."""
        if self._replica is not None:
            await self._replica.ready()
            return self._replica.store
        store = self.store
        await store.open()
        return store


def _log_failure(task: asyncio.Future[Any] | concurrent.futures.Future[Any]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("a task of the scheduler failed", exc_info=task.exception())
