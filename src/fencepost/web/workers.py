"""For workers of engines that have no route to the store: the start gate, heartbeats, and what their runs say."""

from __future__ import annotations

from typing import Any

from fencepost.errors import ConfigurationError, StoreCorrupt
from fencepost.model import State
from fencepost.model.values import clean_json
from fencepost.runs.fire import CHECKPOINT_LIMIT
from fencepost.store.base import Alive, Claim, GiveBack, Report, RetryLater, Settle, Start, Store
from fencepost.store.codec import from_json, to_json
from fencepost.store.rereading import readable_job
from fencepost.web.endpoint import Call, Shape, stored_fire
from fencepost.web.problems import Problem

UPDATE_LIMIT = 4 * CHECKPOINT_LIMIT
"""Bytes of an update's JSON: a checkpoint, output and progress."""

FromWorker = Alive | Report | Settle | RetryLater | GiveBack


async def start(call: Call) -> Shape:
    """Whether a worker may run a fire's body: once per token."""
    key, asked = call.path["key"], call.body
    gate = Start(key, asked.token, asked.worker, asked.heartbeat, asked.ttl)

    async def act(store: Store) -> Shape:
        (accepted,) = (await store.update_claims(asked.worker, [gate])).accepted
        claim = await _claim(store, key, asked.token)
        if not accepted or claim is None:
            raise Problem(409, f"{key}: token {asked.token} may not start here; end without a failure")
        record = await readable_job(store, claim.job.id)
        kept = record.kept if record is not None else None
        given = to_json(call.caller.sight.claim(claim))
        return {"key": key, "token": asked.token, "claim": given, "kept": kept}

    return await call.web.desk.act(act)


async def update(call: Call) -> Shape:
    """A heartbeat, a report or the outcome of a run that passed the start gate."""
    key, asked = call.path["key"], call.body
    sent = _update({**asked.update, "key": key, "token": asked.token})

    async def act(store: Store) -> Shape:
        if (await stored_fire(store, key)).remote is None:
            raise Problem(409, f"{key} is not run by an engine; its replica alone says how it ends")
        (accepted,) = (await store.update_claims(asked.worker, [sent])).accepted
        claim = await _claim(store, key, asked.token)
        wanted = claim is not None and claim.fire.cancel_requested
        return {"key": key, "token": asked.token, "accepted": accepted, "cancel_requested": wanted}

    return await call.web.desk.act(act)


def _update(given: Any) -> FromWorker:
    try:
        update: FromWorker = from_json(FromWorker, clean_json(given, "the update", UPDATE_LIMIT))
    except (ConfigurationError, StoreCorrupt) as error:
        raise Problem(422, f"update: {error}") from None
    if isinstance(update, Settle) and not State(update.state).final:
        raise Problem(422, f"update: {update.state} is not final")
    return update


async def _claim(store: Store, key: str, token: int) -> Claim | None:
    fire = await stored_fire(store, key)
    record = await readable_job(store, fire.job_id)
    if fire.token != token or fire.state is not State.RUNNING or fire.remote is None or record is None:
        return None
    return Claim(fire, record.job)
