"""Rules of the replicas' loops, each taken out."""

from __future__ import annotations

from tests.protocol.mutants.mutant import Edit, Mutant, mutant

DECLARING = "fencepost.replica.declaring"
ELECTION = "fencepost.replica.election"
RUN = "fencepost.runs.run"
RUNS = "fencepost.replica.runs"
HEART = "fencepost.replica.heartbeat"
REPLICA_MODULE = "fencepost.replica.replica"
NOTIFIER = "fencepost.replica.notifier"
RETRY = "fencepost.model.retry"
SETTLER = "fencepost.replica.settler"
DATA_LOSS_DETECTOR = "fencepost.replica.data_loss"
WORKER = "fencepost.replica.worker"
RANK = "fencepost.replica.rank"

REPLICA: tuple[Mutant, ...] = (
    mutant(
        "marked_before_it_is_delivered",
        "a notice is marked after its channel has taken it",
        NOTIFIER,
        "                await self._deliver(groups, delivery)\n",
        "                keys = [each.key for group in groups for each in group]\n"
        "                await store.notices.update_outbox([NoticeChange(key, 'delivered') for key in keys])\n"
        "                await self._deliver(groups, delivery)\n",
    ),
    mutant(
        "trust_counted_from_the_reply",
        "a claim is trusted for so long after its request was sent",
        WORKER,
        "start_before = attempt.sent + TRUSTED",
        "start_before = replica.clock.steady() + TRUSTED",
    ),
    mutant(
        "no_trust_window",
        "past its trust window a body does not start",
        WORKER,
        "if replica.draining or replica.clock.steady() >= start_before:",
        "if replica.draining:",
        Edit(RUN, "if self.cause is not None or not self.trusted():", "if self.cause is not None:"),
    ),
    mutant(
        "the_next_in_rank_waits_for_ever",
        "what the first replica in rank does not claim the next one does, a little later",
        RANK,
        "NextClaim(due + BACKUP * len(before), each.at, before)",
        "NextClaim(float('inf') if before else due, each.at, before)",
    ),
    mutant(
        "late_replies_are_not_given_back",
        "what was claimed too late, or unheard, is given back",
        RUNS,
        "        self._replica.settler.put(update)\n",
        "",
    ),
    mutant(
        "unknown_claims_are_kept",
        "a claim in the reply to a heartbeat that no run knows is given back",
        RUNS,
        "if claim.key not in self._by_key and claim.claim_no <= concluded",
        "if False",
    ),
    mutant(
        "what_has_run_is_given_back",
        "a run that the store forgot to have settled is settled again",
        RUNS,
        "update = ended if ended is not None and ended.token == token else GiveBack(key, token)",
        "update = GiveBack(key, token)",
        focus=("moves",),
    ),
    mutant(
        "an_earlier_run_goes_on",
        "a run whose fire this replica has claimed again is fenced",
        RUNS,
        "                outdated.fence()",
        "                pass",
    ),
    mutant(
        "fenced_runs_go_on",
        "a run whose token is gone is fenced",
        RUNS,
        "                    run.fence()\n",
        "                    pass\n",
    ),
    mutant(
        "cancel_not_told",
        "a request to cancel reaches the run with the next heartbeat",
        RUNS,
        'run.cancel("requested")',
        "pass",
    ),
    mutant(
        "drain_leaves_at_once",
        "who stops lets its runs end before it leaves",
        REPLICA_MODULE,
        "await self._until(lambda: not self.runs, self.settings.drain_timeout.total_seconds())\n"
        "        if self.runs:\n"
        '            log.warning("the drain limit is over; ending %s", _listed(self.runs.running_keys))\n'
        "        for run in self.runs.values():\n"
        '            run.cancel("drain")\n'
        "        await self._until(lambda: not self.runs and self.settler.is_empty, self._patience())",
        "pass",
        Edit(
            REPLICA_MODULE,
            "        if not self.runs:\n            await self._leave()",
            "        await self._leave()",
        ),
    ),
    mutant(
        "stale_leader_stays",
        "a leader steps down when it hears of another",
        ELECTION,
        '            self._trusted_until = float("-inf")\n            seconds',
        "            seconds",
    ),
    mutant(
        "retries_without_end",
        "a fire is retried as often as its policy says",
        RETRY,
        "if attempt >= self.attempts:",
        "if False:",
    ),
    mutant(
        "timeout_ignored",
        "a body is cancelled when its time is up",
        RUN,
        "        if timeout is not None:\n            loop",
        "        if False:\n            loop",
    ),
    mutant(
        "claims_in_doubt",
        "nothing is claimed for 0.7 TTL after the server restarted",
        DATA_LOSS_DETECTOR,
        "return max(0.0, self._claims_from - steady)",
        "return 0.0",
    ),
    mutant(
        "not_declared_again",
        "definitions are written again after a loss",
        DECLARING,
        "        self.add(declared.values())\n",
        "",
    ),
    mutant(
        "bad_update_blocks_the_others",
        "an update that cannot be written is parted from the others",
        SETTLER,
        "            return error\n        self._conclude",
        "            raise\n        self._conclude",
        focus=("values",),
    ),
    mutant(
        "innocent_runs_not_recorded",
        "only the run whose outcome cannot be written is settled as such",
        SETTLER,
        "            await self._write(entries[:middle])\n",
        "            for each in entries[:middle]:\n"
        "                if (instead := unrecorded(each.update, error)) is not None:\n"
        "                    await self._sent([each], instead)\n"
        "            return\n",
        focus=("values",),
    ),
    mutant(
        "seen_meanwhile_is_forgotten",
        "what was seen after a heartbeat was composed is reported with the next one",
        DATA_LOSS_DETECTOR,
        "        self.has_unreported = not is_of_seen and self.seen != reported\n",
        "        self.has_unreported = False\n",
        focus=("moves",),
    ),
    mutant(
        "a_heartbeat_makes_up_for_a_lost_step",
        "a heartbeat that the new server counts does not stand for a step that it has lost",
        DATA_LOSS_DETECTOR,
        "        if reply.steps == self.seen.steps:\n",
        "        if False:\n",
        focus=("moves",),
    ),
    mutant(
        "nothing_was_seen",
        "a heartbeat tells what the replica was told",
        HEART,
        "            seen=replica.data_loss.seen,\n",
        "",
    ),
)
