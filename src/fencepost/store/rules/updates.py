"""Updates: a run reports, is settled, waits for a retry, or is given back; only under its current token."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

from fencepost.clock import Moment
from fencepost.model import (
    FireRecord,
    State,
    changed,
    job_of,
)
from fencepost.model.traces import RUN
from fencepost.store.base import (
    GiveBack,
    Missing,
    RemoteUpdate,
    Report,
    RetryLater,
    Settle,
    Update,
    Updated,
)
from fencepost.store.rows import Rows
from fencepost.store.rules import notify_rules, remote
from fencepost.store.rules.claims import wakes_in
from fencepost.store.rules.ledger import (
    after_end,
    finished,
    free_places,
    keep,
    let_children_go,
    refuse_aside,
    wait_again,
)

ENDS = Settle | RetryLater | GiveBack
"""Updates that end a run."""


def update_claims(rows: Rows, at: Moment, replica: str, updates: Sequence[Update]) -> Updated:
    _refuse_to_forget(rows, at, updates)
    fast = _settle_fast(rows, at, updates)
    rows.preload(at.wall, fires=[update.key for update in updates if update.key not in fast])
    accepted = tuple(update.key in fast or update_claim(rows, at, update) for update in updates)
    presence, leads = rows.replicas.get(replica), rows.leader.holder == replica
    if presence is None:
        return Updated(accepted)
    if rows.may_lose_writes and is_counted(rows, accepted):
        presence = changed(presence, steps=presence.steps + 1)
        rows.replicas.put(presence)
    next_at = None if presence.draining else rows.jobs.soonest(presence, leads)
    return Updated(accepted, wakes_in(at, next_at), presence.steps, next_at)


def is_counted(rows: Rows, accepted: Sequence[bool]) -> bool:
    """Whether it is a step that can be missed. As long as there is doubt only heartbeats count, which say what was
    seen: otherwise a count that was lost would be made up by what is done now."""
    return any(accepted) and rows.leader.era.standing == "settled"


def _refuse_to_forget(rows: Rows, at: Moment, updates: Sequence[Update]) -> None:
    """What a run keeps for later ones is written with its outcome, or neither is; before anything is changed."""
    keeping = [each for each in updates if isinstance(each, Settle) and each.keep is not None]
    if keeping:
        rows.preload(at.wall, fires=[settle.key for settle in keeping])
    for settle in keeping:
        fire = rows.fires.get(settle.key)
        if fire is None or fire.state is not State.RUNNING or fire.token != settle.token:
            continue
        if rows.jobs.get(fire.job_id) is None:
            refuse_aside(rows, fire.job_id, f"what {fire.key} keeps for later runs cannot be stored: ")


def _settle_fast(rows: Rows, at: Moment, updates: Sequence[Update]) -> set[str]:
    """Settle in bulk what can be; the keys of those settled."""
    times = Counter(update.key for update in updates)
    settles = [
        each for each in updates if isinstance(each, Settle) and times[each.key] == 1 and each.keep is None
    ]
    if any(each.state is State.FAILED for each in settles) and rows.entries.get(notify_rules.RULES):
        # A rule may ask for it: that is for the general path.
        settles = [each for each in settles if each.state is not State.FAILED]
    running = rows.fast_running(at.wall, [each.key for each in settles])
    ends = [
        _settled(at, running[settle.key], settle)
        for settle in settles
        if settle.key in running and running[settle.key].token == settle.token
    ]
    # A job remembers how its runs ended in the order of the batch: all of its ends go the same way.
    in_bulk = {fire.key for fire in ends}
    others = {job_of(each.key) for each in updates if isinstance(each, ENDS) and each.key not in in_bulk}
    ends = [fire for fire in ends if fire.job_id not in others]
    if ends:
        rows.put_fast_ends(ends)
    return {fire.key for fire in ends}


def update_claim(rows: Rows, at: Moment, update: Update) -> bool:
    """Compare and set on the token: only the current one may report, settle or give back. A settle
    repeated because its reply was lost finds its own token on the row and is answered alike."""
    fire = rows.fires.get(update.key)
    if fire is None or fire.token != update.token:
        return False
    if fire.settled and fire.settled == update.token:
        return isinstance(update, ENDS) and fire.attempts[-1].outcome == _outcome(update)
    if fire.state is not State.RUNNING:
        return False
    if isinstance(update, RemoteUpdate):
        return _update_remote(rows, at, fire, update)
    if fire.remote is not None and not isinstance(update, Report):
        rows.notify = True  # its end may make something due, and no replica is answered here
    if isinstance(update, Report):
        rows.fires.put(
            changed(
                fire,
                progress=fire.progress if update.progress is None else update.progress,
                checkpoint=update.checkpoint if update.saves else fire.checkpoint,
                output=fire.output if update.output is None else update.output,
                trace=fire.trace if update.trace is None else {**(fire.trace or {}), RUN: update.trace},
            )
        )
        return True
    if isinstance(update, Settle):
        settled = _settled(at, fire, update)
        rows.fires.put(settled)
        record = rows.jobs.get(fire.job_id)
        if record is None:
            rows.jobs.decide_soon(fire.job_id, at.wall)
        else:
            record = after_end(rows, at, record, settled)
            keep(rows, at, record if update.keep is None else changed(record, kept=update.keep))
        free_places(rows, at, settled)
        let_children_go(rows, at, settled)
    elif isinstance(update, RetryLater):
        ended = fire.ended(at.wall, _outcome(update), update.error)
        wait_again(rows, at, ended, at.wall + timedelta(seconds=update.delay), settled=update.token)
    elif isinstance(update, GiveBack):
        # Nobody failed: what was given back does not count as an attempt.
        ended = changed(fire.ended(at.wall, _outcome(update)), attempt=fire.attempt - 1)
        wait_again(rows, at, ended, at.wall, settled=update.token)
        rows.notify = True
    return True


def _update_remote(rows: Rows, at: Moment, fire: FireRecord, update: RemoteUpdate) -> bool:
    if isinstance(update, Missing) and update.then is not None and not fire.cancel_requested:
        return remote.may_end(at, fire, update) and update_claim(rows, at, update.then)
    return remote.update_remote(rows, at, fire, update)


def _settled(at: Moment, fire: FireRecord, settle: Settle) -> FireRecord:
    ended = finished(at, fire.ended(at.wall, _outcome(settle), settle.error), settle.state, settle.reason)
    output = fire.output if settle.output is None else settle.output
    return changed(ended, settled=settle.token, output=output, result=settle.result)


def _outcome(update: Settle | RetryLater | GiveBack) -> str:
    """How an attempt is put on record."""
    if isinstance(update, Settle):
        return update.state.value
    return "retry" if isinstance(update, RetryLater) else "given back"
