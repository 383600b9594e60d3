"""This process's copy of the state: how it follows the log, adds to it, and starts a new generation."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from fencepost.errors import ConfigurationError, FencepostError, StoreCorrupt
from fencepost.store.codec import micros
from fencepost.store.file.archive import Archive
from fencepost.store.file.folder import Folder
from fencepost.store.file.generation import FORMAT, IN_WORDS, Draft, Header, header_of, read_snapshot
from fencepost.store.file.lines import damaged
from fencepost.store.file.log import Log
from fencepost.store.file.redo import Redo
from fencepost.store.file.state import Change, LoggedState
from fencepost.store.formats import Format, format_of
from fencepost.store.unreadable import UnreadableRows

log = logging.getLogger("fencepost")

SNAPSHOT_BYTES = 1_000_000
"""Of log, before a new generation begins."""

MANY_ROWS = 5_000
"""A state of more is written while others go on."""


class Journal:
    def __init__(
        self, folder: Folder, snapshot_bytes: int, keep_fires: int, registry: UnreadableRows
    ) -> None:
        self.folder = folder
        self._registry = registry
        self._snapshot_bytes = snapshot_bytes
        self._keep_fires = keep_fires
        self._state: LoggedState | None = None
        self._log: Log | None = None
        self._header: Header | None = None
        self._store: str | None = None
        self._snapshot_size = 0
        self._draft: Draft | None = None
        self._retry_at = 0

    @property
    def state(self) -> LoggedState:
        assert self._state is not None
        return self._state

    @property
    def log(self) -> Log:
        assert self._log is not None
        return self._log

    @property
    def header(self) -> Header:
        assert self._header is not None
        return self._header

    # --- following --------------------------------------------------------------------------------------

    def load(self) -> None:
        """Read the state, if it is not in memory. Not under the lock: a large one takes a while, and what is
        committed when this begins does not change any more."""
        if self._state is not None:
            return
        try:
            with self.folder.turn.taken():
                generation = self._generation()
                path = self.folder.snapshot(generation)
                self._log = Log(self.folder.log(generation))
                committed = self._log.size()
                source = path.open("rb")
            with source:
                data = source.read()
            header, rows = read_snapshot(data, path)
            self._check_identity(header, path)
            archive = Archive(self.folder.fires, header.days, header.pruned_before, self._registry)
            self._state = LoggedState(archive, self._registry)
            self._redo(rows, path)
            self._header, self._store, self._snapshot_size = header, header.store, len(data)
            self._replay(committed)
        except BaseException:
            self.forget()
            raise

    def _check_identity(self, header: Header, path: Path) -> None:
        if self._store not in (None, header.store):
            raise StoreCorrupt(
                f"{self.folder.path} was replaced by another store while in use; stop all replicas, check it, "
                "start again"
            )
        if header_of(self.log.read_first(), self.log.path) != header:
            raise damaged(f"{self.log.path} does not belong to {path.name}", path)

    def catch_up(self) -> bool:
        """Take over what others have written. False: too much has happened, `load` again."""
        if self._state is None:
            return False
        try:
            if self._follow(self._generation()):
                self._replay()
                return True
        except BaseException:
            self.forget()
            raise
        self.forget()
        return False

    def _generation(self) -> int:
        generation = self.folder.generation()
        if generation is None:
            raise damaged(f"{self.folder.path} holds no snapshot any more", self.folder.turn.path)
        return generation

    def _follow(self, generation: int) -> bool:
        """One step to the next generation needs no snapshot: what is left of the log before it can be read
        although its name is gone, and the new one goes on inside of that."""
        if generation == self.header.generation:
            return self.log.is_in_place()
        if generation != self.header.generation + 1:
            return False
        self._replay()
        fresh = Log(self.folder.log(generation))
        header = header_of(fresh.read_first(), fresh.path)
        if header.store != self._store or not fresh.skip(self.log.end - header.follows):
            fresh.close()
            return False
        before = self.state.fires.archive
        archive = before.with_days(header.days)
        moved = archive.moved_since(before)
        self._go_over(header, fresh, archive, moved, os.stat(self.folder.snapshot(generation)).st_size)
        return True

    def _go_over(self, header: Header, fresh: Log, archive: Archive, moved: list[str], size: int) -> None:
        self.state.fires.moved_out(moved, archive)
        self.log.close()
        self._header, self._log, self._snapshot_size = header, fresh, size

    def _replay(self, committed: int | None = None) -> None:
        for entry in self.log.read(committed):
            self._redo(entry["rows"], self.log.path)

    def _redo(self, changes: Iterable[Change], path: Path) -> None:
        try:
            redo = Redo(self.state)
            for change in changes:
                redo.redo(change)
        except (FencepostError, LookupError, TypeError, ValueError) as error:
            kind = ConfigurationError if isinstance(error, ConfigurationError) else StoreCorrupt
            raise kind(f"{path} cannot be read: {error}") from error

    def forget(self) -> None:
        """What is in memory may be ahead of the disk, or belong to another process: read it again."""
        if self._log is not None:
            self._log.close()
        self._state = self._log = self._header = None

    # --- writing ----------------------------------------------------------------------------------------

    def commit(self, names: list[str], at: datetime) -> None:
        """Make the changes of these operations last. On failure they have not happened."""
        changes = self.state.take_changes()
        if not changes:
            self.log.sync()
            return
        try:
            self.log.append({"at": micros(at), "do": names, "rows": changes})
        except BaseException:
            self.forget()
            raise
        if self._draft is not None or self.log.end > max(self._limit(), self._retry_at):
            self._advance_generation()

    def _limit(self) -> float:
        """A large state is written again only after as much has been logged; one in an older format at once."""
        if self.header.format < FORMAT:
            return 0
        return self._snapshot_bytes * max(1.0, self._snapshot_size / SNAPSHOT_BYTES)

    # --- generations --------------------------------------------------------------------------------------

    @property
    def format(self) -> Format:
        return format_of(self.header.format, FORMAT, IN_WORDS)

    def create(self) -> None:
        """The first one, unless there is one."""
        if self.folder.generation() is not None:
            return
        for generation in self.folder.logs():
            left = Log(self.folder.log(generation))
            entries = left.read()
            left.close()
            if generation > 1 or len(entries) > 1:
                raise damaged(f"{left.path} has lost its snapshot", left.path)
        archive = Archive(self.folder.fires)
        draft = Draft(
            self.folder, Header(FORMAT, secrets.token_hex(8), 1), archive, LoggedState(archive).dump()
        )
        draft.write()
        draft.publish(b"")

    def tidy(self) -> None:
        """Remove what crashes have left behind, unless another process may be writing it at this moment."""
        if self.folder.begin_draft():
            self.folder.tidy(self.header.generation, self.state.fires.archive.days)
            self.folder.end_draft()

    def convert(self) -> None:
        """Put a generation of this version's format in force now. If a replica of an earlier version is writing one at
        this moment, the next commit here does it."""
        if self.header.format < FORMAT:
            self._advance_generation(at_once=True)

    def _advance_generation(self, at_once: bool = False) -> None:
        """Write the next one, or put it in force. The operation that led here is committed: whatever goes wrong
        now is no failure of it."""
        if self._draft is None and self.folder.begin_draft():
            self._draft = self._begin(at_once)
        draft = self._draft
        if draft is None or draft.is_being_written:
            return
        self._draft, end = None, self.log.end
        try:
            draft.publish(self.log.since(draft.header.follows))
            fresh = Log(self.folder.log(draft.header.generation))
            fresh.read_first()
            fresh.skip(end - draft.header.follows)
            archive = self.state.fires.archive.with_days(draft.header.days)
            self._go_over(draft.header, fresh, archive, [fire.key for fire in draft.moving], draft.size)
            self.folder.tidy(draft.header.generation, archive.days)
        except OSError as error:
            log.warning("%s: no snapshot could be written (%s); the log goes on", self.folder.path, error)
            self._retry_at = end + self._snapshot_bytes
            self.forget()  # it may have come just far enough to be in force
        finally:
            self.folder.end_draft()

    def _begin(self, at_once: bool) -> Draft:
        state, archive, header = self.state, self.state.fires.archive, self.header
        moving = state.to_move_out(self._keep_fires)
        draft = Draft(
            self.folder,
            Header(FORMAT, header.store, header.generation + 1, self.log.end, archive.pruned_before),
            archive,
            state.dump(but={fire.key for fire in moving}),
            moving,
        )
        if not at_once and len(state.jobs.rows) + len(state.fires.rows) > MANY_ROWS:
            draft.write_aside()
        else:
            draft.write()
        return draft

    def end(self) -> None:
        if self._draft is not None:
            self._draft.abandon()
            self._draft = None
        self.folder.end_draft()
        self.forget()
