"""Nothing that comes from outside is believed: columns, coordinates, lengths and amounts are looked at.

A row that cannot be read is left out and counted. A source of which much cannot be read is refused as a whole: it has
probably changed its form, and what is left of it must not replace good data.
"""

from __future__ import annotations

import csv
import io
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from zipfile import BadZipFile, ZipFile, ZipInfo

MOST_BYTES = 8 << 30
"""Of one file inside an archive, unpacked: a small archive may hold an enormous one."""
MOST_UNREADABLE = 0.01
"""Of all rows."""
LONGEST_TEXT = 300

CsvRow = dict[str, str]


class SourceInvalid(Exception):
    """It cannot be used. What was made of it before stays as it is."""


class Unreadable(Exception):
    """One row."""


class Tally:
    """Counts what became of the rows of a source."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.kept = 0
        self.passed_over: Counter[str] = Counter()
        """Readable, but not what we want; by reason."""
        self.unreadable: Counter[str] = Counter()

    def check(self) -> None:
        """Called after the last row."""
        unreadable = self.unreadable.total()
        if unreadable > MOST_UNREADABLE * (self.kept + self.passed_over.total() + unreadable):
            reason, count = self.unreadable.most_common(1)[0]
            raise SourceInvalid(
                f"{self.source}: {unreadable} rows cannot be read, {count} of them: {reason}; "
                "compare the source with what stop_sync.reading expects"
            )
        if not self.kept:
            raise SourceInvalid(f"{self.source}: not one row is left; see its filters in stop_sync.reading")

    def __str__(self) -> str:
        others = [f"{count} {reason}" for reason, count in (self.passed_over + self.unreadable).most_common()]
        return f"{self.source}: {self.kept} kept" + (f"; left out: {', '.join(others)}" if others else "")


def csv_rows(
    archive: Path,
    member: str,
    columns: Sequence[str],
    delimiter: str = ",",
    other_names: Mapping[str, Sequence[str]] | None = None,
) -> Iterator[CsvRow]:
    """The rows of a CSV file in a zip archive, these columns of them. `member` may be `*.csv` if there is only one.
    `other_names`: what a column may be called instead; the first name that the file has is read."""
    try:
        with ZipFile(archive) as unpacked, unpacked.open(_member(unpacked, member, archive)) as raw:
            # Half of all exporters write a byte order mark, which would become part of the first column's name.
            reader = csv.DictReader(io.TextIOWrapper(raw, "utf-8-sig", newline=""), delimiter=delimiter)
            there = frozenset(reader.fieldnames or ())
            names = {column: (column, *(other_names or {}).get(column, ())) for column in columns}
            found = {
                column: next((name for name in names[column] if name in there), None) for column in columns
            }
            if missing := [column for column, name in found.items() if name is None]:
                raise SourceInvalid(f"{archive.name}: {member} has no column {', '.join(missing)}")
            for row in reader:
                yield {column: (row[name] or "").strip() for column, name in found.items() if name}
    except (BadZipFile, zlib.error, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise SourceInvalid(
            f"{archive.name}: {member} cannot be read ({error}); download it again"
        ) from error


def coordinates(latitude: str | None, longitude: str | None) -> tuple[float, float]:
    try:
        north, east = float(latitude or ""), float(longitude or "")
    except ValueError:
        raise Unreadable("no coordinates") from None
    if not (-90 <= north <= 90 and -180 <= east <= 180):  # nor not-a-number
        raise Unreadable("impossible coordinates")
    return north, east


def text(value: str) -> str:
    value = value.strip()
    if len(value) > LONGEST_TEXT:
        raise Unreadable("a text that is too long")
    return value


def required(value: str, what: str) -> str:
    if not value.strip():
        raise Unreadable(f"no {what}")
    return text(value)


def _member(unpacked: ZipFile, wanted: str, archive: Path) -> ZipInfo:
    found = [each for each in unpacked.infolist() if fnmatchcase(each.filename, wanted)]
    if len(found) != 1:
        raise SourceInvalid(f"{archive.name}: one {wanted} was expected in it, found {len(found)}")
    if found[0].file_size > MOST_BYTES:
        raise SourceInvalid(f"{archive.name}: {wanted} has more than {MOST_BYTES} bytes")
    return found[0]
