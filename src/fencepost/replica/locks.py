"""What happens to locks, for those who want to follow it: logger `fencepost.locks`, at debug.

A lock is the leader's lease, or the claim of one run. Both are acquired, renewed, lost, refused or released.
"""

from __future__ import annotations

import logging

from fencepost.model import Lease

log = logging.getLogger("fencepost.locks")


def log_lease(replica: str, before: Lease, after: Lease, draining: bool) -> None:
    """One heartbeat has asked for leadership, or for more of it."""
    if not log.isEnabledFor(logging.DEBUG):
        return
    had, has = before.holder == replica, after.holder == replica
    if has and had and before.term == after.term:
        log.debug("renewed leader, term %d, renewal %d", after.term, after.renewals)
    elif has:
        log.debug("acquired leader, term %d", after.term)
    elif had:
        log.debug("%s leader, term %d", "released" if draining else "lost", before.term)
    elif not draining:
        log.debug("refused leader: %s holds term %d", after.holder, after.term)


def log_claim(operation: str, key: str, token: int) -> None:
    """`operation`: acquired, renewed, lost, refused, released."""
    log.debug("%s %s, token %d", operation, key, token)
