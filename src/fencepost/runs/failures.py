"""How a run failed: the text kept with its fire, and the one line that logs show."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

from fencepost.errors import BodyDied, CommandFailed, RaisedElsewhere
from fencepost.runs.masking import own_mask

TEXT_LIMIT = 8_192
LINE_LIMIT = 500


@dataclass(frozen=True, slots=True)
class Failure:
    text: str
    """For the fire: the traceback, or the end of a command's output. Secrets are masked."""
    message: str
    """One line, masked."""
    kind: str = ""
    """The exception's type; empty for a command, a process that died and a timeout."""
    error: BaseException | None = None
    """The exception itself, for error trackers. Not masked. What a process of its own raised came here as text: then
    this is a `RaisedElsewhere` that holds the traceback of that process as its message."""
    exit_code: int | None = None
    """Of a command."""

    @property
    def line(self) -> str:
        return ": ".join(filter(None, (self.kind, self.message)))


def failure_of(error: BaseException) -> Failure:
    """What a body raised."""
    if isinstance(error, CommandFailed):
        return Failure(_masked(str(error)), _one_line(error.line), error=error, exit_code=error.code)
    if isinstance(error, BodyDied):
        return Failure(_masked(str(error)), _one_line(str(error)), error=error)
    if isinstance(error, RaisedElsewhere):
        return Failure(_masked(str(error)), _one_line(error.message), error.kind, error)
    kind = type(error).__name__
    try:
        text, message = "".join(traceback.format_exception(error)), str(error)
    except Exception:  # an exception may be broken itself; the run has failed all the same
        # Code that tried to show it would fail as well: it is not passed on.
        return Failure(f"{kind} (it cannot be shown)", "it cannot be shown", kind)
    return Failure(_masked(text), _one_line(message), kind, error)


def timed_out(limit: object, and_then: str = "") -> Failure:
    text = "; ".join(filter(None, (f"timed out after {limit}", and_then)))
    return Failure(text, text, error=TimeoutError(text))


def _masked(text: str) -> str:
    text = own_mask()(text[-2 * TEXT_LIMIT :])
    return text if len(text) <= TEXT_LIMIT else "…" + text[-TEXT_LIMIT:]


def _one_line(text: str) -> str:
    text = " ".join(own_mask()(text[: 4 * LINE_LIMIT]).split())
    return text if len(text) <= LINE_LIMIT else f"{text[: LINE_LIMIT - 1]}…"
