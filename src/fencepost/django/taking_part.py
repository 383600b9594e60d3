"""When a web process begins to take part.

A server may import the application in one process and serve it in others: `gunicorn --preload` imports it in its
master and forks the workers afterwards, as uwsgi does. The master serves nothing and must run nothing. Under gunicorn
`start_in_background` sees where it is. Under any other server a process that has imported the application starts a
second later, or at its first request. If it forks within that second it is a master: it never starts, and its children
do. Once a process has started, its forks take no part: they are workers of a `multiprocessing` pool, or the like.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from dataclasses import replace
from datetime import timedelta

from fencepost.django.project import is_testing, project_scheduler
from fencepost.errors import FencepostError
from fencepost.scheduler import prefork

log = logging.getLogger("fencepost")

DELAY = 1.0
"""Seconds."""
DRAIN_AT_RELOAD = timedelta(seconds=2)
"""The longest that `runserver` waits for runs before it loads the edited code."""


class DjangoStarter:
    """Of one process, and again of each process that it forks before it has started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._started = False
        self._is_master = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._before_fork, after_in_child=self._forked)

    def soon(self) -> None:
        if is_testing():
            return
        if prefork.ARBITER in sys.modules:
            self.now()  # gunicorn says which of its processes this is, while it imports the application
            return
        self._timer = threading.Timer(DELAY, self.now)
        self._timer.daemon = True
        self._timer.start()

    def now(self) -> None:
        """Once. With every request, so the usual answer comes first."""
        if self._started:
            return
        with self._lock:
            if self._is_master or is_testing():
                return
            first, self._started = not self._started, True
        if first:
            start()

    def _before_fork(self) -> None:
        """A timer that is at work has won: this process takes part, and the child is none of a server's."""
        timer, self._timer = self._timer, None
        if timer is None or self._started:
            return
        self._is_master = True
        timer.cancel()
        if timer is not threading.current_thread():
            timer.join(DELAY)  # one thread fewer that the child would lack

    def _forked(self) -> None:
        self._lock = threading.Lock()
        if self._is_master:
            self._is_master = False
            self.soon()


def start() -> None:
    """Take part beside the requests. A failure is logged: the site is served all the same."""
    try:
        scheduler = project_scheduler()
        if is_reloaded():
            drain = min(scheduler.settings.drain_timeout, DRAIN_AT_RELOAD)
            scheduler.settings = replace(scheduler.settings, drain_timeout=drain)
        scheduler.start_in_background()
    except FencepostError as error:
        log.error("this process runs no jobs: %s", error)


def is_reloaded() -> bool:
    """Whether this is a process of `runserver` that ends as soon as code is edited."""
    return os.environ.get("RUN_MAIN") == "true"
