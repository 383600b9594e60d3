"""Whether the store exists. Checked before a reader opens it: opening a missing store would create it."""

from __future__ import annotations

from pathlib import Path

from fencepost.errors import ConfigurationError, StoreUnavailable
from fencepost.store.base import Store

WHERE_ELSE = (
    "give the right one with --namespace or FENCEPOST_NAMESPACE, the right store with --store or "
    "FENCEPOST_STORE"
)
"""What helps if a namespace holds nothing."""


START = "fencepost run {target}"
"""What starts a replica, for messages. Where a framework has a command line of its own, it names that."""


def must_exist(store: Store, name: str, target: str | None = None) -> None:
    """The store can be seen from here, and its file or folder exists."""
    if not store.shared:
        raise ConfigurationError(
            f"{name} lives inside one process, and nothing outside can see it; give the scheduler a store that "
            "is shared, such as sqlite:///app.db, and name it with --store or FENCEPOST_STORE"
        )
    path = getattr(store, "path", None)
    if not isinstance(path, Path) or path.exists():
        return
    if target is not None:
        raise ConfigurationError(f"there is no {path} yet; {never_run(target)}")
    raise StoreUnavailable(
        f"there is no {path} yet: start a replica with `fencepost run app:scheduler`, or name the right store "
        "with --store or FENCEPOST_STORE"
    )


def never_run(target: str) -> str:
    return f"nothing has run here yet; start it with `{how_to_start(target)}`"


def how_to_start(target: str) -> str:
    return START.format(target=target)
