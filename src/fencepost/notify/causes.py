"""What a rule can ask for: `failed | missed | late("5m")`. Each is a set of causes, joined by `|`."""

from __future__ import annotations

from collections.abc import Iterable

from fencepost.errors import ConfigurationError
from fencepost.model.notices import Causes
from fencepost.settings import duration

failed: Causes = frozenset({"failed"})
"""A run has failed, and the one before had not."""
missed: Causes = frozenset({"missed"})
"""A fire was due and will not run."""
lost: Causes = frozenset({"lost"})
"""A replica died in the middle of a run."""
recovered: Causes = frozenset({"recovered"})
"""The first success after any of the others."""
started: Causes = frozenset({"started"})
"""With `started` or `succeeded` a rule follows each run: `failed` is then each failure, too."""
succeeded: Causes = frozenset({"succeeded"})


def late(after: object) -> Causes:
    """A fire has not started so long after it was due: `late("5m")`."""
    return frozenset({f"late:{_seconds(after, 'late')}"})


def no_success_for(span: object) -> Causes:
    """The job had no success for so long: `no_success_for("26h")`."""
    return frozenset({f"no_success:{_seconds(span, 'no_success_for')}"})


def failed_in_a_row(times: int) -> Causes:
    if type(times) is not int or not 2 <= times <= 10_000:
        raise ConfigurationError(f"failed_in_a_row({times!r}): give a number between 2 and 10,000")
    return frozenset({f"failed_in_a_row:{times}"})


def _seconds(value: object, what: str) -> int:
    seconds = round(duration(value).total_seconds())
    if seconds < 1:
        raise ConfigurationError(f"{what}({value!r}): give a second or more")
    return seconds


def causes_from(words: object) -> Causes:
    """As `fencepost.toml` has them: `["failed", "late 5m", "no_success_for 26h", "failed_in_a_row 3"]`."""
    found: Causes = frozenset()
    for word in words if isinstance(words, list) else [words]:
        name, _, value = word.strip().partition(" ") if isinstance(word, str) else ("", "", "")
        if name in ("failed", "missed", "lost", "recovered", "started", "succeeded") and not value:
            found |= {name}
        elif name == "late" and value:
            found |= late(value)
        elif name == "no_success_for" and value:
            found |= no_success_for(value)
        elif name == "failed_in_a_row" and value.isdecimal():
            found |= failed_in_a_row(int(value))
        else:
            raise ConfigurationError(
                f'on: {word!r} is not known; use "failed", "missed", "lost", "recovered", "late 5m", '
                '"no_success_for 26h", "failed_in_a_row 3", and for each run "started", "succeeded"'
            )
    return found


def words_of(causes: Iterable[str]) -> list[str]:
    """As `causes_from` reads them."""
    return [_words(*cause.partition(":")[::2]) for cause in causes]


def _words(name: str, number: str) -> str:
    if not number:
        return name
    if name == "failed_in_a_row":
        return f"{name} {number}"
    seconds = int(number)
    unit, size = next(
        (each for each in (("d", 86_400), ("h", 3_600), ("m", 60)) if seconds % each[1] == 0), ("s", 1)
    )
    return f"{'no_success_for' if name == 'no_success' else name} {seconds // size}{unit}"
