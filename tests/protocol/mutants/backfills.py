"""Rules about fires asked for later, backfills, skips and jitter, each taken out."""

from __future__ import annotations

from tests.protocol.mutants.mutant import Mutant, focused, mutant

BACKFILLING = "fencepost.store.rules.backfilling"
BACKFILLS_RULES = "fencepost.store.rules.backfills"
DECIDE = "fencepost.store.rules.decide"
FIRES = "fencepost.store.rules.fires"

BACKFILLS: tuple[Mutant, ...] = focused(
    "backfills",
    mutant(
        "later_is_now",
        "a fire that was asked for later is not due before",
        FIRES,
        "return max(at.wall, new.due_at or at.wall) + timedelta(seconds=max(0.0, new.delay))",
        "return max(at.wall, new.due_at or at.wall)",
    ),
    mutant(
        "backfill_without_limit",
        "no more fires of a backfill run at once than its limit says",
        BACKFILLS_RULES,
        "(backfill.paused or running[backfill.name] >= backfill.limit)",
        "backfill.paused",
    ),
    mutant(
        "paused_backfill_goes_on",
        "no fire of a backfill starts while it is paused",
        BACKFILLS_RULES,
        "(backfill.paused or running[backfill.name] >= backfill.limit)",
        "running[backfill.name] >= backfill.limit",
    ),
    mutant(
        "cancelled_backfill_goes_on",
        "what waits of a backfill ends when that is cancelled",
        BACKFILLING,
        "    return end_fires(rows, at, record, backfill.name, Reason.REQUESTED, change.by)\n",
        "    return record\n",
    ),
    mutant(
        "backfill_ends_early",
        "a backfill has ended when its last due time has",
        BACKFILLING,
        "        exhausted=plan.next_at is None,\n",
        "        exhausted=True,\n",
    ),
    mutant(
        "backfill_doubles_what_succeeded",
        "a backfill of what is missing passes over what has succeeded",
        BACKFILLING,
        "if backfill.only_missing and _is_on_record(rows, record, row.first):",
        "if False:",
    ),
    mutant(
        "forgotten_backfill_goes_on",
        "after a loss of data a backfill waits for a person, if its runs are not to be repeated",
        BACKFILLING,
        "    return not repeats_harmlessly(rows, at, record)\n",
        "    return False\n",
    ),
    mutant(
        "skip_ignored",
        "a fire that is to be skipped does not run",
        DECIDE,
        "        if skip is not None:\n",
        "        if False:\n",
    ),
    mutant(
        "jitter_ignored",
        "a fire does not start before the moment that chance has put it off to",
        DECIDE,
        "return fire.state is not State.PENDING or fire.due_at + view.record.job.jitter_of(fire) <= now",
        "return True",
    ),
)
