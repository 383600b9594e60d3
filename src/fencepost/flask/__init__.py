"""Fencepost in a Flask application.

from fencepost import every
from fencepost.flask import Fencepost

fencepost = Fencepost(app)

@fencepost.job(every(minutes=5))
def report(): ...
"""

from __future__ import annotations

from typing import Any

from fencepost.flask.extension import Fencepost as Fencepost
from fencepost.flask.extension import scheduler_of_app

__all__ = ["Fencepost"]


def __getattr__(name: str) -> Any:
    """`fencepost.flask:scheduler` is the current application's, for the command line."""
    if name == "scheduler":
        return scheduler_of_app()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
