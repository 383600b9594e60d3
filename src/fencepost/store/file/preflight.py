"""What can be said of a folder before it is opened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fencepost.errors import NothingStored, StoreUnavailable
from fencepost.store.file.folder import Folder, namespaces
from fencepost.store.file.journal import Journal
from fencepost.store.formats import Contents, Present
from fencepost.store.local import KEPT, refuse_network_file_system, unless_rebooted
from fencepost.store.preflight import Preflight, nothing_there, ok, unless_outdated
from fencepost.store.unreadable import UnreadableRows


def preflight(path: Path, namespace: str) -> Preflight:
    refuse_network_file_system(path)
    if namespace not in (found := namespaces(path)):
        return nothing_there(f"file://{path}", namespace, found)
    with _loaded(path / namespace) as journal:
        return unless_outdated(journal.format, unless_rebooted(journal.state.boot, Preflight((ok(KEPT),))))


def contents(path: Path, namespace: str) -> Contents:
    if namespace not in (found := namespaces(path)):
        raise NothingStored(f"file://{path}", namespace, found)
    with _loaded(path / namespace) as journal:
        state, days = journal.state, journal.header.days.values()
        fires = len(state.fires.rows) + sum(day.count for day in days)
        replicas = tuple(Present(each.id, each.version) for each in state.replicas.every())
        return Contents(journal.format, len(state.jobs.rows), fires, replicas)


@contextmanager
def _loaded(path: Path) -> Iterator[Journal]:
    folder = Folder(path)
    journal = Journal(folder, snapshot_bytes=0, keep_fires=0, registry=UnreadableRows())
    try:
        journal.load()
        yield journal
    except OSError as error:
        raise StoreUnavailable(f"{folder.path}: {error}") from error
    finally:
        journal.end()
        folder.turn.let_go()
