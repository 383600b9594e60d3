"""Rules of runs that an engine carries out, each taken out."""

from __future__ import annotations

from tests.protocol.mutants.mutant import Edit, Mutant, focused, mutant

ATTEND = "fencepost.engine_worker.attend"
BASE = "fencepost.runs.engines.base"
LOOP = "fencepost.replica.engines"
REMOTE = "fencepost.store.rules.remote"

ENGINES: tuple[Mutant, ...] = focused(
    "engine",
    mutant(
        "no_start_gate",
        "the start gate opens once per token",
        REMOTE,
        "    if not_started(rows, fire) and not fire.cancel_requested:",
        "    if not fire.cancel_requested:",
    ),
    mutant(
        "the_gate_is_not_heeded",
        "a worker to which the gate is closed runs nothing",
        ATTEND,
        "claim = await self._gate.claim(order) if accepted else None\n            except StoreUnavailable:",
        "claim = await self._gate.claim(order)\n            except StoreUnavailable:",
    ),
    mutant(
        "the_gate_trusts_a_store_that_came_up_anew",
        "in a later history of the store the gate stays closed",
        REMOTE,
        "    return (remote.incarnation, remote.server) == (era.incarnation, era.server)",
        "    return True",
    ),
    mutant(
        "swept_after_one_gone",
        "a run is over when its engine has said so twice",
        REMOTE,
        "LEAST_POLLS = 2",
        "LEAST_POLLS = 1",
        Edit(LOOP, "if watch.polls < 2:", "if watch.polls < 1:"),
    ),
    mutant(
        "heartbeats_of_workers_do_not_count",
        "a run whose worker lives is not ended on its engine's word",
        REMOTE,
        "    return missing.seconds >= OBSERVED * (remote.heartbeat if expired else remote.ttl)",
        "    return expired or True",
        Edit(LOOP, "return self._silent_for(watch) >= OBSERVED * watch.remote.heartbeat", "return True"),
        Edit(REMOTE, "if missing.polls < LEAST_POLLS or missing.beats != remote.beats:", "if False:"),
    ),
    mutant(
        "random_refs",
        "a ref is derived from fire and token",
        BASE,
        'hashlib.sha256(f"{namespace}\\n{key}\\n{token}".encode())',
        'hashlib.sha256(__import__("os").urandom(8))',
    ),
    mutant(
        "sent_again_without_a_look",
        "an order that may have arrived is sent again only after the engine was asked",
        LOOP,
        "if not watch.polls or now < watch.send_at:",
        "if watch.sent is not None:",
        Edit(
            LOOP,
            "        return watch.sighting.kind == UNSURE.kind or (",
            "        return watch.sent is None or (",
        ),
    ),
    mutant(
        "a_run_belongs_to_its_replica",
        "the run of an engine does not end with the replica that sent it",
        REMOTE,
        "return _put(changed(fire, replica=engine_owner(engine), claim_no=0), remote)",
        "return _put(fire, remote)",
        Edit(
            REMOTE,
            "fires = rows.fires.running_of(engine_owner(engine))",
            "fires = rows.fires.running_of(replica)",
        ),
    ),
    mutant(
        "nothing_is_adopted",
        "when the replica that looks after a run is gone, another adopts it",
        REMOTE,
        "        elif rows.replicas.get(remote.by) is None:",
        "        elif False:",
    ),
    mutant(
        "success_of_a_refused_delivery",
        "that an engine calls a run a success is not believed if its worker would have said so",
        LOOP,
        "believed = watch.remote.worker is not None and watch.remote.ttl is None",
        "believed = True",
    ),
    mutant(
        "a_started_run_is_called_never_started",
        "what has passed the gate is lost, or repeated only if it may be",
        REMOTE,
        "    if not not_started(rows, fire):\n        return crash(",
        "    if False:\n        return crash(",
    ),
    mutant(
        "failures_told_by_an_engine_are_repeated_without_end",
        "a run that its engine calls failed is repeated as often as its job says",
        LOOP,
        "retry.delay_after(fire.attempt - fire.crashes, chance)",
        "retry.delay_after(1, chance)",
    ),
)
