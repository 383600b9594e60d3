"""What can be said of a folder before it is opened."""

from __future__ import annotations

from pathlib import Path

from fencepost.errors import StoreUnavailable
from fencepost.store.file.folder import Folder, namespaces
from fencepost.store.file.journal import Journal
from fencepost.store.local import KEPT, refuse_network_file_system, unless_rebooted
from fencepost.store.preflight import Preflight, nothing_there, ok
from fencepost.store.unreadable import Registry


def preflight(path: Path, namespace: str) -> Preflight:
    refuse_network_file_system(path)
    folder = Folder(path / namespace)
    if namespace not in (found := namespaces(path)):
        return nothing_there(f"file://{path}", namespace, found)
    journal = Journal(folder, snapshot_bytes=0, keep_fires=0, registry=Registry())
    try:
        journal.load()
        boot = journal.state.boot
    except OSError as error:
        raise StoreUnavailable(f"{folder.path}: {error}") from error
    finally:
        journal.end()
        folder.turn.let_go()
    return unless_rebooted(boot, Preflight((ok(KEPT),)))
