"""Store operations as short lines. Nothing in them depends on the machine."""

from __future__ import annotations

from typing import Any

from fencepost.model import FireRecord
from fencepost.store.base import GiveBack, RetryLater, Settle, Update


def told(name: str, args: tuple[Any, ...], reply: Any) -> str:
    """What an operation did; empty if nothing worth telling."""
    teller = globals().get(f"_{name}")
    return str(teller(args, reply)) if teller else ""


def _claim_fires(args: tuple[Any, ...], reply: Any) -> str:
    parts = [f"{claim.fire.key}#{claim.fire.token}" for claim in reply.claims]
    parts += [_closed(fire) for fire in reply.closed]
    request = args[0]
    head = f"no {request.number} room {request.room} term {request.term}:"
    return f"{head} {', '.join(parts)}" if parts else ""


def _update_claims(args: tuple[Any, ...], reply: Any) -> str:
    return ", ".join(
        f"{_update(update)} {'accepted' if accepted else 'REFUSED'}"
        for update, accepted in zip(args[1], reply.accepted, strict=True)
    )


def _plan_fires(args: tuple[Any, ...], reply: Any) -> str:
    return ", ".join(
        f"{plan.job_id} v{plan.version} +{sum(row.count for row in plan.rows)} until "
        f"{_time(plan.rows[-1].last) if plan.rows else '-'} next {_time(plan.next_at)}"
        f"{'' if planned else ' REFUSED'}"
        for plan, planned in zip(args[0], reply, strict=True)
    )


def _sweep(args: tuple[Any, ...], reply: Any) -> str:
    if reply is None:
        return f"term {args[1]} REFUSED"
    if not reply.expired:
        return ""
    return f"{', '.join(reply.expired)} expired: {', '.join(_closed(fire) for fire in reply.settled)}"


def _put_jobs(args: tuple[Any, ...], reply: Any) -> str:
    return ", ".join(f"{put.job_id} {put.outcome}" for put in reply if put.outcome != "unchanged")


def _leave(args: tuple[Any, ...], reply: Any) -> str:
    return "has left"


def _update(update: Update) -> str:
    key = f"{update.key}#{update.token}"
    if isinstance(update, Settle):
        return f"{key} {update.state}"
    if isinstance(update, RetryLater):
        return f"{key} retry in {update.delay:.3f}"
    if isinstance(update, GiveBack):
        return f"{key} given back"
    return f"{key} {type(update).__name__.lower()}"


def _closed(fire: FireRecord) -> str:
    more = f"..{_time(fire.last_due)} ({fire.count})" if fire.count > 1 else ""
    return f"{fire.key}{more} {fire.state}: {fire.why}"


def _time(moment: Any) -> str:
    return f"{moment:%H:%M:%S}" if moment else "never"
