"""The project's jobs in virtual time, inside of Django's `TestCase`:

    from fencepost.django.testing import virtual

    class ReportTests(TestCase):
        def test_one_report_a_day(self):
            with virtual(start=datetime(2026, 3, 28, tzinfo=UTC)) as t:
                t.advance(days=2)
                t.assert_ran("nightly_report", times=2)
            self.assertEqual(Report.objects.count(), 2)

Jobs run in the test's own thread and transaction, so what they write is seen by the test and rolled back with it. The
ledger is in memory: no store is opened. `fire.due_at` and `fire.now()` are in virtual time, `timezone.now()` is not.

What is tested may trigger jobs, as a view does: they run as time goes on. One with `connection=` does not wait for the
commit, since the transaction of a `TestCase` has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from fencepost.django import bodies
from fencepost.django.project import project_scheduler
from fencepost.scheduler.manual import add_manual
from fencepost.scheduler.transactions import Transactions
from fencepost.store.base import NewFire
from fencepost.testing import virtual as virtual_time
from fencepost.testing.virtual import VirtualTime
from fencepost.testing.world import EPOCH, no_event_loop


@contextmanager
def virtual(start: datetime = EPOCH, **options: Any) -> Iterator[VirtualTime]:
    """`fencepost.testing.virtual` of the project's scheduler."""
    scheduler = project_scheduler()
    transactions = scheduler.transactions
    with _as_in_threads(), virtual_time(scheduler, start, **options) as time:
        scheduler.drive, scheduler.transactions = time.do, _AtOnce(time)
        try:
            yield time
        finally:
            scheduler.drive, scheduler.transactions = None, transactions


class _AtOnce(Transactions):
    """In place of the inbox, from which fires are taken after the commit."""

    def __init__(self, time: VirtualTime) -> None:
        super().__init__(lambda: time.store, lambda: "the virtual store")
        self._time = time

    def write(self, connection: Any, fire: NewFire) -> None:
        self._time.do(add_manual(self._time.store, fire))

    async def write_async(self, connection: Any, fire: NewFire) -> None:
        await add_manual(self._time.store, fire)


@contextmanager
def _as_in_threads() -> Iterator[None]:
    """Functions are called on the virtual event loop, where Django would refuse their queries, and give them another
    connection than the test's. So no loop is seen to run meanwhile, as in the threads that they run in otherwise."""
    before, bodies.thread = bodies.thread, no_event_loop
    try:
        yield
    finally:
        bodies.thread = before
