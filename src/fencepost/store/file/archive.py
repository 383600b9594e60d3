"""Final fires that were moved out of memory: one file per day they were due, written once, never changed.

Which files there are and how long each is stands in the snapshot that moved the fires out. What lies beyond that
length was left by a crash on the way to a snapshot: no process reads it, and the next append overwrites it.
Manual fires have files of their own, because their keys do not tell the day.
"""

from __future__ import annotations

import heapq
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from pathlib import Path

from fencepost.errors import StoreCorrupt
from fencepost.model import FireRecord, job_of
from fencepost.store.base import FireQuery
from fencepost.store.codec import from_json, micros, to_json
from fencepost.store.file.folder import sync_folder, write_at
from fencepost.store.file.lines import checked, damaged, line, lines
from fencepost.store.tables import by_due, matches
from fencepost.store.unreadable import UnreadableRows


@dataclass(frozen=True, slots=True)
class Day:
    """A file, as far as it counts."""

    size: int
    count: int
    newest_due: datetime
    newest_last_due: datetime
    oldest_finished: datetime
    newest_finished: datetime


@dataclass(frozen=True, slots=True)
class Archive:
    """Never changes: what changes is which one the state has."""

    folder: Path
    days: Mapping[str, Day] = field(default_factory=dict)
    """By file name."""
    pruned_before: datetime | None = None
    registry: UnreadableRows = field(default_factory=UnreadableRows, compare=False)
    """Where lines that cannot be read are noted."""
    _manual: dict[str, tuple[str, int]] = field(default_factory=dict, compare=False)
    """Where each manual fire is: file name and offset. Read when first asked for."""
    _read: dict[str, Day] = field(default_factory=dict, compare=False)
    """How much of each file has been read into it."""

    # --- reading ----------------------------------------------------------------------------------------

    def find(self, key: str) -> FireRecord | None:
        name, start = f"fires-{key.rpartition('@')[2][:10]}.jsonl", 0
        if "@" not in key:
            self._index_manual()
            name, start = self._manual.get(key, ("", 0))
        if name not in self.days:
            return None
        data = self._content(name)
        needle = b'"key":' + json.dumps(key).encode()
        while (found := data.find(needle, start)) >= 0:
            begin, start = data.rfind(b"\n", 0, found) + 1, found + 1
            fire = self._fire_in(data[begin : data.index(b"\n", found)], name)
            if fire is not None and fire.key == key:
                return None if self.hides(fire) else fire
        return None

    def complete(self, query: FireQuery, recent: Sequence[FireRecord]) -> list[FireRecord]:
        """What was found in memory together with what was moved out, newest first."""
        found = list(recent)
        if (
            query.key is not None
            or query.keys
            or (query.states and not any(state.final for state in query.states))
        ):
            return found
        known = {fire.key for fire in found}
        for name, day in sorted(self.days.items(), key=lambda item: item[1].newest_due, reverse=True):
            if len(found) >= query.limit and found[-1].due_at > day.newest_due:
                break
            if query.since is not None and day.newest_last_due < query.since:
                continue
            rows = islice((fire for fire in self._scan(name, query) if fire.key not in known), query.limit)
            found = heapq.nlargest(query.limit, [*found, *rows], key=by_due)
        return found

    def _scan(self, name: str, query: FireQuery) -> Iterator[FireRecord]:
        """Newest first. To decode a row costs far more than to find out when it was due: who reads page by page
        must not pay for the whole day each time."""
        needle = b"" if query.job_id is None else b'"job_id":' + json.dumps(query.job_id).encode()
        try:
            data = self._content(name)
        except FileNotFoundError:
            return  # everything in it has been pruned since
        until = None if query.until is None else micros(query.until)
        found = ((self._due_in(raw, name), raw) for raw in data.splitlines() if needle in raw)
        rows = sorted((due, raw) for due, raw in found if due is not None)
        for (due, _), raw in reversed(rows):
            if until is None or due < until:
                fire = self._fire_in(raw, name)
                if fire is not None and matches(fire, query) and not self.hides(fire):
                    yield fire

    def _content(self, name: str, start: int = 0) -> bytes:
        path, size = self.folder / name, self.days[name].size
        with path.open("rb") as file:
            file.seek(start)
            data = file.read(size - start)
        if start + len(data) < size:
            raise damaged(f"{path} is shorter than it was", path)
        return data

    def _fire_in(self, raw: bytes, name: str) -> FireRecord | None:
        key, job_id = _named_in(raw, name)
        return self.registry.read("fire", key, _fire_in, raw, self.folder / name, job_id=job_id)

    def _due_in(self, raw: bytes, name: str) -> tuple[int, bytes] | None:
        key, job_id = _named_in(raw, name)
        return self.registry.read("fire", key, _due_in, raw, self.folder / name, job_id=job_id)

    def is_broken(self, key: str) -> bool:
        """Whether a line that cannot be read may be of this fire. Of a fire by hand: if a line of its job, or of a job
        that cannot be told, is broken, since its key may be what is damaged."""
        if not self.registry or not self.days:
            return False
        job_id = job_of(key)
        rows = [row for row in self.registry.rows if row.kind == "fire" and not row.holds]
        return any(row.key == key or ("!" in key and row.job_id in (job_id, None)) for row in rows)

    def _index_manual(self) -> None:
        for name, day in self.days.items():
            known = self._read.get(name)
            # A file that was pruned and made again has none of its fires of then.
            same = known is not None and day.oldest_finished <= known.oldest_finished
            start = offset = known.size if known and same else 0
            if not name.startswith("manual-") or offset == day.size:
                continue
            for raw in self._content(name, offset).splitlines(keepends=True):
                if fire := self._fire_in(raw.rstrip(b"\n"), name):
                    self._manual[fire.key] = name, start
                start += len(raw)
            self._read[name] = day

    def check(self) -> None:
        for name, day in self.days.items():
            path = self.folder / name
            if not path.exists() or path.stat().st_size < day.size:
                raise damaged(f"{path} is missing or shorter than it was", path)

    def with_days(self, days: Mapping[str, Day]) -> Archive:
        return replace(self, days=days)

    # --- pruning ----------------------------------------------------------------------------------------

    def hides(self, fire: FireRecord) -> bool:
        return bool(self.pruned_before and fire.finished_at and fire.finished_at < self.pruned_before)

    def pruned(self, before: datetime) -> Archive:
        """Without what was finished before. A file goes with the next snapshot, when all of it is hidden."""
        return replace(self, pruned_before=max(before, self.pruned_before or before))

    def count_before(self, before: datetime) -> int:
        """How many fires `pruned` will hide."""
        return sum(self._count(name, day, before) for name, day in self.days.items())

    def _count(self, name: str, day: Day, before: datetime) -> int:
        since = self.pruned_before or day.oldest_finished
        if before <= max(day.oldest_finished, since):
            return 0
        if since <= day.oldest_finished and day.newest_finished < before:
            return day.count
        low, high = micros(since), micros(before)
        return sum(low <= finished < high for finished in _finished_in(self._content(name)))

    # --- moving out -------------------------------------------------------------------------------------

    def with_moved(self, fires: Iterable[FireRecord]) -> Archive:
        """These appended and on disk, and without the files that are pruned as a whole."""
        by_name: dict[str, list[FireRecord]] = defaultdict(list)
        for fire in fires:
            by_name[f"{'fires' if fire.scheduled else 'manual'}-{fire.due_at:%Y-%m-%d}.jsonl"].append(fire)
        days = dict(self.days)
        for name, rows in by_name.items():
            days[name] = _appended(self.folder / name, days.get(name), rows)
        if by_name:
            sync_folder(self.folder)
        limit = self.pruned_before
        kept = {name: day for name, day in days.items() if limit is None or day.newest_finished >= limit}
        return replace(self, days=kept)

    def moved_since(self, before: Archive) -> list[str]:
        """Keys of the fires that are here and were not there."""
        keys = []
        for name, day in self.days.items():
            known = before.days[name].size if name in before.days else 0
            if day.size > known:
                rows = lines(self._content(name, known), self.folder / name)
                keys += [row["key"] for (_, row), _ in rows]
        return keys


def _appended(path: Path, day: Day | None, fires: Sequence[FireRecord]) -> Day:
    start = day.size if day else 0
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(descriptor, start)
        rows = b"".join(line([micros(fire.finished_at or fire.due_at), to_json(fire)]) for fire in fires)
        size = write_at(descriptor, rows, start)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    finished = [fire.finished_at for fire in fires if fire.finished_at]
    added = Day(
        size,
        len(fires),
        max(fire.due_at for fire in fires),
        max(fire.last_due for fire in fires),
        min(finished),
        max(finished),
    )
    if day is None:
        return added
    return Day(
        size,
        day.count + added.count,
        max(day.newest_due, added.newest_due),
        max(day.newest_last_due, added.newest_last_due),
        min(day.oldest_finished, added.oldest_finished),
        max(day.newest_finished, added.newest_finished),
    )


def _fire_in(raw: bytes, path: Path) -> FireRecord:
    fire: FireRecord = from_json(FireRecord, json.loads(_whole(raw, path))[1])
    return fire


_DUE = re.compile(rb'\{"key":"([^"\\]*)","job_id":"[^"\\]*","due_at":(-?\d+)')


def _due_in(raw: bytes, path: Path) -> tuple[int, bytes]:
    """When a row was due, and its key: what they are sorted by."""
    if found := _DUE.search(raw):
        return int(found[2]), found[1]
    fire = _fire_in(raw, path)
    return micros(fire.due_at), fire.key.encode()


def _finished_in(data: bytes) -> Iterator[int]:
    """Of every row that is whole, without decoding all of it."""
    for raw in data.splitlines():
        if text := checked(raw):
            yield int(text[1 : text.index(b",")])


_NAMED = re.compile(rb'"key":"([^"\\]*)","job_id":"([^"\\]*)"')


def _named_in(raw: bytes, name: str) -> tuple[str, str | None]:
    """The key and the job that a line seems to be of, to name it by."""
    if found := _NAMED.search(raw):
        return found[1].decode(errors="replace"), found[2].decode(errors="replace")
    return f"in {name}", None


def _whole(raw: bytes, path: Path) -> bytes:
    text = checked(raw)
    if text is None:
        raise StoreCorrupt(f"{path}: the checksum of its line does not fit")
    return text
