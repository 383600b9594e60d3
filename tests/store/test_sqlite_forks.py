"""A fork while threads of ours are in SQLite, which has locks of its own in memory: the child can use it."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.store.sqlite import SqliteStore
from fencepost.store.sqlite.inbox import SqliteInbox
from fencepost.store.sqlite.preflight import contents, preflight

FORKS = 100


def opened_and_closed(path: Path) -> None:
    async def both() -> None:
        store = SqliteStore(path)
        await store.open()
        await store.close()

    asyncio.run(both())


USES: dict[str, Callable[[Path], object]] = {
    "inbox": lambda path: SqliteInbox(path, "default").waiting(5),
    "preflight": lambda path: preflight(path, "default"),
    "contents": lambda path: contents(path, "default"),
    "open and close": opened_and_closed,
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_child_can_use_sqlite_whatever_a_thread_of_its_parent_did(tmp_path: Path, use) -> None:
    path = tmp_path / "shared.db"
    opened_and_closed(path)
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            use(path)

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    try:
        codes = [opens_in_child() for _ in range(FORKS)]
    finally:
        ended.set()
        for worker in workers:
            worker.join(60)
    assert codes == [0] * FORKS


def opens_in_child() -> int:
    if (child := os.fork()) == 0:
        signal.alarm(5)  # ends it if it hangs: within SQLite no exception would
        sqlite3.connect(":memory:").execute("select 1")
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
