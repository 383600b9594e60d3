"""Fencepost beside APScheduler 3.x.

    from fencepost.apscheduler import guard

    guard(scheduler, store="redis://…")

One line, and a scheduler that runs in every worker runs each fire once. See docs/guard.md.
"""

try:
    import apscheduler.triggers.base  # noqa: F401
except ImportError as missing:
    raise ImportError("APScheduler 3.x is needed: pip install 'fencepost[apscheduler]'") from missing

from fencepost.apscheduler.guard import Guard, guard
from fencepost.apscheduler.triggers import from_apscheduler

__all__ = ["Guard", "from_apscheduler", "guard"]
