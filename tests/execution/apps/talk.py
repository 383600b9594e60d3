"""A function that says something in every way there is."""

from __future__ import annotations

import logging
import sys


def talk() -> None:
    print("to stdout, token=abcdef")
    print("to stderr", file=sys.stderr)
    logging.getLogger("talk").warning("to the log")
