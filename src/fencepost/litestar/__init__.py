"""Fencepost in a Litestar application.

app = Litestar(plugins=[FencepostPlugin(scheduler)])
"""

from __future__ import annotations

from typing import Any

from fencepost.litestar.plugin import FencepostPlugin as FencepostPlugin

__all__ = ["FencepostPlugin"]


def __getattr__(name: str) -> Any:
    """`fencepost.litestar:scheduler` is the application's, for the command line."""
    if name == "scheduler":
        return FencepostPlugin.latest()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
