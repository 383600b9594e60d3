"""Text from outside made fit to be stored and shown: without secrets, and without what a terminal would obey.

In doubt it hides too much rather than too little.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from fencepost.model.values import clean_text

Mask = Callable[[str], str]

HIDDEN = "***"
SHORTEST = 6
"""Letters of a secret that is searched for by its value: shorter ones would hide ordinary words."""

_SECRET = r"(?:passw(?:or)?d|passphrase|pwd|secret|token|credential|(?:api|access|private)[_-]?key)"
_SECRET_NAME = re.compile(rf"{_SECRET}|(?:^|_)(?:auth|key|dsn|cookie)(?:_|$)", re.IGNORECASE)
_NO_SECRET_NAME = re.compile(r"^(?:FIRE_.*|(?:OLD)?PWD|.*_(?:FILE|PATH|DIR|SOCK))$", re.IGNORECASE)
_USER_INFO = re.compile(r"(://[^\s:/@'\"]{0,200}:)([^\s'\"]{1,500})@")
_FLAG = rf"--?[\w-]{{0,40}}{_SECRET}[\w-]{{0,40}}"
_GIVEN = r"[\"']?[ \t]{0,5}[=:][ \t]{0,5}"
_IN_TEXT = (
    (("://",), _USER_INFO, rf"\1{HIDDEN}@"),
    (
        ("authorization",),
        re.compile(rf"(authorization{_GIVEN}[\"']?)(?:\w{{1,20}}[ \t]+)?[^\s\"',]+", re.IGNORECASE),
        rf"\1{HIDDEN}",
    ),
    (
        ("--",),
        re.compile(rf"({_FLAG}[ \t]+)(?:'[^'\n]*'|\"[^\"\n]*\"|[^\s'\"]+)", re.IGNORECASE),
        rf"\1{HIDDEN}",
    ),
    (("bearer",), re.compile(r"(\bbearer[ \t]{1,5})[\w.~+/=-]{6,}", re.IGNORECASE), rf"\1{HIDDEN}"),
    (
        ("passw", "passphrase", "pwd", "secret", "token", "credential", "key"),
        re.compile(rf"({_SECRET}\w{{0,40}}{_GIVEN})(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s,;&\"']+)", re.IGNORECASE),
        rf"\1{HIDDEN}",
    ),
)
"""Each with words, one of which must be there: most text has none, and looking for them takes next to no time."""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@lru_cache(maxsize=1)
def own_mask() -> Mask:
    """For what this process says. Found out once: a replica that starts computes it again (`cache_clear`)."""
    return mask_for(os.environ)


def mask_for(env: Mapping[str, str]) -> Mask:
    """Hides what looks like a secret, and the secrets of this environment by their values."""
    return _mask(secrets_in(env))


def masked_words(words: Sequence[str]) -> list[str]:
    """Of a command: what follows `--password` and its like is hidden."""
    hidden = [re.fullmatch(_FLAG, word, re.IGNORECASE) is not None for word in ("", *words)]
    return [HIDDEN if after else word for word, after in zip(words, hidden, strict=False)]


def secrets_in(env: Mapping[str, str]) -> frozenset[str]:
    """The values of variables that are named like secrets, and the passwords in URLs."""
    found: list[str] = []
    for name, value in env.items():
        if _SECRET_NAME.search(name) and not _NO_SECRET_NAME.match(name):
            found += value.splitlines()  # output is searched line by line
        found += [password for _, password in _USER_INFO.findall(value)]
    return frozenset(secret.strip() for secret in found if len(secret.strip()) >= SHORTEST)


@lru_cache(maxsize=50)
def _mask(values: frozenset[str]) -> Mask:
    known = _any_of(values)

    def mask(text: str) -> str:
        text = clean_text(_CONTROL.sub("", _ESCAPES.sub("", text)))
        if known is not None:
            text = known.sub(HIDDEN, text)
        lowered = text.lower()
        for words, pattern, instead in _IN_TEXT:
            if any(word in lowered for word in words):
                text = pattern.sub(instead, text)
        return text

    return mask


def _any_of(values: Iterable[str]) -> re.Pattern[str] | None:
    """The longest first: one may begin with another."""
    longest_first = sorted(values, key=lambda value: (-len(value), value))
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None
