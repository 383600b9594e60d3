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
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from fencepost.django.project import project_scheduler
from fencepost.testing import virtual as virtual_time
from fencepost.testing.virtual import VirtualTime
from fencepost.testing.world import EPOCH

ALLOWED = "DJANGO_ALLOW_ASYNC_UNSAFE"


@contextmanager
def virtual(start: datetime = EPOCH, **options: Any) -> Iterator[VirtualTime]:
    """`fencepost.testing.virtual` of the project's scheduler."""
    with _blocking_queries(), virtual_time(project_scheduler(), start, **options) as time:
        yield time


@contextmanager
def _blocking_queries() -> Iterator[None]:
    """Bodies run on the virtual event loop, where Django would refuse a query because it keeps others waiting. Here no
    others are kept waiting: time stands still meanwhile."""
    before = os.environ.get(ALLOWED)
    os.environ[ALLOWED] = "true"
    try:
        yield
    finally:
        if before is None:
            del os.environ[ALLOWED]
        else:
            os.environ[ALLOWED] = before
