"""What a run says: its log records and what its process prints. The end of it is kept with the fire.

Log records are seen where they are made, by the factory that makes them, and only in the context of a run. A handler on
the root logger would see fewer of them, and be seen itself: `logging.basicConfig` does nothing where there is one, and
warnings are no longer printed by default.
"""

from __future__ import annotations

import codecs
import logging
import re
import traceback
from collections import deque
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from fencepost.model import FireRecord
from fencepost.runs.masking import Mask, own_mask

LIMIT = 16_384
"""Characters kept with a fire: the last, in whole lines."""
LONGEST_LINE = 2_000
LONGEST_KEPT = 4 * LONGEST_LINE
"""Characters of a line that are searched for secrets. More than are kept, so that no secret is cut before it is
found."""

_LEFT_OUT = re.compile(r"… (\d+) earlier lines left out")


class Output:
    """The end of what one run has said, behind that of the attempts before it.

    Kept as it came, and made fit to be shown when it is asked for: a command may say much more than is ever kept.
    """

    def __init__(self, record: FireRecord, mask: Mask | None = None) -> None:
        self._mask = mask or own_mask()
        self._lines: deque[str] = deque()
        self._size = 0
        self._left_out = 0
        self._mine = 0
        """Lines of this attempt, kept or not."""
        if record.output is not None:
            self._take_over(record.output)
            self._append(f"— token {record.token} —")

    def add(self, text: str) -> None:
        for line in text.splitlines():
            self._append(line[:LONGEST_KEPT])
            self._mine += 1

    def __str__(self) -> str:
        lines, more = self._shown(self._lines, LIMIT)
        left_out = self._left_out + more
        return "\n".join([f"… {left_out} earlier lines left out", *lines] if left_out else lines)

    def last(self, size: int) -> str:
        """So many characters of what this attempt has said."""
        mine = list(self._lines)[-self._mine :] if self._mine else []
        return "\n".join(self._shown(mine, size)[0])

    def _shown(self, kept: Iterable[str], size: int) -> tuple[list[str], int]:
        """The last whole lines, in so many characters; and how many there were before them."""
        lines = [_cut(line) for line in self._mask("\n".join(kept)).splitlines()]
        first = len(lines)
        while first > 0 and (size := size - len(lines[first - 1]) - 1) >= 0:
            first -= 1
        return lines[first:], first

    def _take_over(self, earlier: str) -> None:
        for line in earlier.splitlines():
            if found := _LEFT_OUT.fullmatch(line):
                self._left_out = int(found[1])
            else:
                self._append(line)

    def _append(self, line: str) -> None:
        self._lines.append(line)
        self._size += min(len(line), LONGEST_LINE) + 1
        while self._size > LIMIT:
            self._size -= min(len(self._lines.popleft()), LONGEST_LINE) + 1
            self._left_out += 1


def _cut(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"


class Lines:
    """Whole lines from the pieces that come through a pipe."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def take(self, piece: bytes) -> str:
        """The lines that are complete now; with an empty piece, what is left."""
        text = self._rest + self._decoder.decode(piece, final=not piece)
        complete, _, self._rest = text.rpartition("\n") if piece else (text, "", "")
        self._rest = self._rest[: LONGEST_KEPT + 1]  # of a line that never ends
        return complete


def keep_logs() -> None:
    """From now on log records are kept with the run in whose context they are made. Asked for by every replica; done
    once in a process, and never undone: another factory may have been put around this one."""
    global _keeping
    own_mask.cache_clear()
    if _keeping:
        return
    _keeping = True
    from fencepost.runs.fire import _current

    make = logging.getLogRecordFactory()

    def factory(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        fire = _current.get()
        if fire is not None:
            fire._say(shown(record))
        return record

    logging.setLogRecordFactory(factory)


_keeping = False


def shown(record: logging.LogRecord) -> str:
    """Not by a `Formatter`, which leaves its marks on the record: others come after us."""
    text = f"{datetime.fromtimestamp(record.created, UTC):%H:%M:%S}Z {record.levelname} {record.name}: "
    try:
        text += record.getMessage()
    except Exception:  # its arguments do not fit the message: the logging handlers report that
        text += repr(record.msg) if isinstance(record.msg, str) else type(record.msg).__name__
    if record.exc_info and record.exc_info[1] is not None:
        text += "\n" + "".join(traceback.format_exception(record.exc_info[1]))
    return text
