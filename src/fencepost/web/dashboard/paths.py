"""Which paths are pages. Nothing here needs a template: the gate asks before anything is rendered."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

SIGN_IN: Final = "/sign-in"
SIGN_OUT: Final = "/sign-out"
PREFERENCES: Final = "/preferences"
ASSETS: Final = "/assets/"
FIRST: Final = frozenset(
    {"", "jobs", "define", "fires", "find", "bulk", "load", "cluster", "audit", "doctor", "history"}
    | {SIGN_IN[1:], SIGN_OUT[1:], PREFERENCES[1:]}
)
"""What the path of a page begins with."""
PERSONAL: Final = (SIGN_OUT, PREFERENCES)
"""Forms that change only the cookies of the browser that sends them: open to every role."""
WEB_FORM: Final = "application/x-www-form-urlencoded"


def is_page(path: str) -> bool:
    return path.lstrip("/").partition("/")[0] in FIRST


def is_open(path: str) -> bool:
    """Needs no sign-in: holds nothing of this installation."""
    return path == SIGN_IN or path.startswith(ASSETS)


def segment(text: str) -> str:
    """As one part of a path, whatever is in it."""
    return quote(text, safe="")


def local_path(text: str) -> str:
    """Where to go after a sign-in: a path of this service, never another site."""
    plain = text.startswith("/") and not text.startswith("//") and "\\" not in text
    return text if plain and text.isprintable() and len(text) <= 2_000 else "/"
