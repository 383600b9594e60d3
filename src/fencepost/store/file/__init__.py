"""The file store: a folder with a log of row changes, for the replicas of one machine."""

from fencepost.store.file.store import FileStore

__all__ = ["FileStore"]
