"""Rules that tie fires and jobs to each other, each taken out."""

from __future__ import annotations

from tests.protocol.mutants.mutant import Edit, Mutant, focused, mutant

CHAINS = "fencepost.store.rules.chains"
CLAIMS = "fencepost.store.rules.claims"
DECIDE = "fencepost.store.rules.decide"
LEDGER = "fencepost.store.rules.ledger"
LIMITS = "fencepost.store.rules.limits"
UPDATES = "fencepost.store.rules.updates"

REPLACING = focused(
    "replace",
    mutant(
        "replacing_beside_the_run",
        "a fire that replaces a run starts when that has ended",
        DECIDE,
        "return replace(view, active=active), [",
        "return replace(view, active=()), [",
    ),
    mutant(
        "replaced_runs_go_on",
        "a run is asked to end when a newer fire replaces it",
        CLAIMS,
        "asked = changed(fire, cancel_requested=True, refers_to=decision.replaced_by)",
        "asked = changed(fire, refers_to=decision.replaced_by)",
    ),
    mutant(
        "replacing_in_order",
        "only the newest fire replaces what is active",
        DECIDE,
        "    *older, newest = scheduled\n",
        "    newest, *older = scheduled\n",
    ),
)

LIMITED = focused(
    "limits",
    mutant(
        "lowest_priority_first",
        "a free slot takes the due fire of the highest priority",
        "fencepost.store.agenda",
        "for priority in sorted(self._agendas, reverse=True):",
        "for priority in sorted(self._agendas):",
    ),
    mutant(
        "limits_forget_other_jobs",
        "a limit counts the runs of all jobs that carry it",
        LIMITS,
        "if (fire is not None and fire.state is State.RUNNING) or (",
        "if (",
    ),
    mutant(
        "limits_of_the_largest_size",
        "where sizes differ the smallest holds",
        "fencepost.model.limits",
        "return min((each.size for each",
        "return max((each.size for each",
    ),
    mutant(
        "freed_places_stay_idle",
        "a freed place makes those who wait due",
        LEDGER,
        "            keep(rows, at, changed(record, held_back=None))\n",
        "            pass\n",
    ),
    mutant(
        "rates_forget_starts",
        "a rate counts the starts of the last stretch",
        LIMITS,
        "for start in state.starts if start > now - period)",
        "for start in state.starts if start > now)",
    ),
)

CHAINED = focused(
    "chains",
    mutant(
        "children_are_forgotten",
        "a child gets its fire with the end of its parent",
        UPDATES,
        "        let_children_go(rows, at, settled)\n",
        "",
    ),
    mutant(
        "a_child_forgets_its_calendar",
        "what a calendar before still owes is planned, also if a fire of a parent came first",
        "fencepost.store.rules.planning",
        "    if head.until is None and not parents_of(record.job.trigger):\n",
        "    if True:\n",
    ),
    mutant(
        "children_follow_failures",
        "a child follows a success, unless it asks for any end",
        CHAINS,
        "return fire.state is State.SUCCEEDED\n",
        "return fire.attempt >= 1\n",
    ),
    mutant(
        "children_do_not_wait_for_all",
        "a child waits for the last of its parents",
        CHAINS,
        "if all(other is not None and",
        "if any(other is not None and",
        Edit(
            CHAINS,
            "lets_go(trigger, other) for other in others):",
            "lets_go(trigger, other) for other in others) or True:",
        ),
    ),
)

UNREAD = (
    mutant(
        "what_is_owed_is_never_paid",
        "a child is let go although the row of its parent, or its own, could not be read",
        "fencepost.store.rules.presence",
        "    chains.catch_up(rows, at)\n",
        "",
        focus=("chains", "rows"),
    ),
    mutant(
        "unread_jobs_free_no_places",
        "the end of a run frees its places although the row of its job cannot be read",
        LEDGER,
        "        let_go(rows, at, limits.release_all(rows, at, fire))\n",
        "        pass\n",
        focus=("limits", "rows"),
    ),
)

ACROSS: tuple[Mutant, ...] = (*REPLACING, *LIMITED, *CHAINED, *UNREAD)
