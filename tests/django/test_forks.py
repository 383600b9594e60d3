"""Servers that import the application in one process and fork others to serve it, as uwsgi does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.django.site import Site

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

SERVER = """
import os, sys, time
from shop_site.wsgi import application
from fencepost.django import scheduler

def takes_part(seconds):
    deadline = time.monotonic() + seconds
    while scheduler.replica is None and time.monotonic() < deadline:
        time.sleep(0.05)
    return scheduler.replica is not None

children = []
for _ in range(2):
    if (pid := os.fork()) == 0:
        if not takes_part(20):
            os._exit(1)
        grandchild = os.fork()  # a worker of the application's own, such as multiprocessing's
        if grandchild == 0:
            os._exit(3 if takes_part(2) else 0)
        ended = os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1])
        scheduler.stop_in_background()
        os._exit(ended)
    children.append(pid)
master = takes_part(3)
codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
answer.update(master=master, codes=codes)
"""


def test_the_children_take_part_and_the_master_does_not(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.manage("migrate", "-v0")
    assert site.shell(SERVER) == {"master": False, "codes": [0, 0]}
