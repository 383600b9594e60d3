"""Tracebacks for people: frames of Fencepost are folded, frames of user code stay."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_FRAME = re.compile(r'  File "(?P<path>[^"]+)", line \d+')
_OURS = Path(__file__).parents[2]


def folded(text: str) -> str:
    """The traceback with neighbouring frames of Fencepost as one line. Anything else passes as it is."""
    return "\n".join(_lines(text.rstrip().splitlines()))


def _lines(lines: list[str]) -> Iterator[str]:
    ours, inside = 0, False
    for line in lines:
        frame = _FRAME.match(line)
        if frame is not None and _is_ours(frame["path"]):
            ours, inside = ours + 1, True
            continue
        if frame is None and inside and line.startswith("    "):
            continue  # the source line of a frame that is folded, and its marks
        if ours:
            yield f"  … {ours} frame{'s' if ours > 1 else ''} of fencepost"
        ours, inside = 0, False
        yield line


def _is_ours(path: str) -> bool:
    """By the place in the package: it may be installed elsewhere on the replica, and a project of the same name is not
    meant."""
    _, found, tail = path.replace("\\", "/").rpartition("/fencepost/")
    return bool(found) and (_OURS / tail).is_file()


def without_repetition(output: str, error: str | None) -> str:
    """The output of a run, with tracebacks folded. The traceback that ended it is cut to its last line, since it is
    shown elsewhere."""
    ending = (error or "").strip().rpartition("\n")[2]
    return "\n".join(
        ending if ending and block.rstrip().endswith(f"\n{ending}") else folded(block)
        for block in _blocks(output.splitlines())
    )


def _blocks(lines: list[str]) -> Iterator[str]:
    """Each traceback by itself, and each line outside of one."""
    block: list[str] = []
    for line in lines:
        if line.startswith("Traceback (most recent call last):") or block:
            block.append(line)
        else:
            yield line
        if len(block) > 1 and not line.startswith(" "):
            yield "\n".join(block)
            block = []
    if block:
        yield "\n".join(block)
