"""A module that is imported for its jobs must not start its scheduler meanwhile.

`fencepost status app:scheduler` imports `app`, and so does a process that runs one function of it. If the module calls
`scheduler.run()` outside of `if __name__ == "__main__":`, the import would never end, and one more replica would run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from fencepost.errors import ConfigurationError


class StartedWhileImported(ConfigurationError):
    pass


class _Import:
    def __init__(self, module: str) -> None:
        self.module = module
        self.refusal: StartedWhileImported | None = None


_current: _Import | None = None


@contextmanager
def refusing_starts(module: str) -> Iterator[None]:
    """Import the module inside of this. Raises `StartedWhileImported` if it tried to start a scheduler, also when the
    module, a server it started or a thread of its own has swallowed that."""
    global _current
    before, _current = _current, _Import(module)
    mine = _current
    try:
        yield
    except BaseException as error:
        if (
            mine.refusal is not None
            and error is not mine.refusal
            and not isinstance(error, KeyboardInterrupt)
        ):
            raise mine.refusal from None
        raise
    else:
        if mine.refusal is not None:
            raise mine.refusal
    finally:
        _current = before


def is_importing() -> bool:
    """Whether a module is imported for its jobs."""
    return _current is not None


def check_start() -> None:
    """Called where a scheduler starts, before anything is done."""
    if _current is not None:
        where = _module_line(sys._getframe()) or f"module {_current.module!r}"
        _current.refusal = StartedWhileImported(
            f"{where} starts the scheduler while it is imported: move that line below "
            '`if __name__ == "__main__":`, so that `python` runs it and an import does not'
        )
        raise _current.refusal


def _module_line(frame: FrameType | None) -> str | None:
    """`app.py, line 12`: the line at the top level of a module that led here."""
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return frame and f"{Path(frame.f_code.co_filename).name}, line {frame.f_lineno},"
