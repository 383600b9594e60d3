"""Rules of the store, each taken out."""

from __future__ import annotations

from tests.protocol.mutants.mutant import Edit, Mutant, mutant

CALENDARS = "fencepost.store.rules.calendars"
CLAIMS = "fencepost.store.rules.claims"
DATA_LOSS = "fencepost.store.rules.data_loss"
DECIDE = "fencepost.store.rules.decide"
DEFINITIONS = "fencepost.store.rules.definitions"
FIRES = "fencepost.store.rules.fires"
JOBS = "fencepost.store.rules.jobs"
LEADERSHIP = "fencepost.store.rules.leadership"
LEDGER = "fencepost.store.rules.ledger"
OUTBOX = "fencepost.store.rules.outbox"
PLANNING = "fencepost.store.rules.planning"
PRESENCE = "fencepost.store.rules.presence"
TABLES = "fencepost.store.tables"
TARGETS = "fencepost.store.rules.targets"
UPDATES = "fencepost.store.rules.updates"
MODEL_JOBS = "fencepost.model.jobs"
JOB_RECORDS = "fencepost.model.job_records"
REPLICAS = "fencepost.model.replicas"

OF_PRESENCE = (
    mutant(
        "no_term_check",
        "a leader's step needs the current term",
        LEADERSHIP,
        "return term is not None and rows.leader.holder == replica and rows.leader.term == term",
        "return term is not None",
    ),
    mutant(
        "leader_only_jobs_for_all",
        'execute_on="leader" needs leadership',
        TABLES,
        "and (leads or not job.leader_only)",
        "",
    ),
    mutant(
        "unknown_tasks_are_claimed",
        "a replica claims only the tasks it knows",
        TABLES,
        "return job.lane in known and (",
        "return (",
    ),
    mutant(
        "expiry_by_the_store_clock_alone",
        "expiry needs a second witness: no renewal was seen",
        PRESENCE,
        "    if suspect.renewals != replica.renewals:\n        return False\n",
        "",
        Edit(
            PRESENCE,
            "return suspect.seconds >= OBSERVED * (replica.heartbeat if expired else replica.ttl)",
            "return expired",
        ),
    ),
    mutant(
        "expiry_by_observation_alone",
        "expiry needs a second witness: the store's clock",
        PRESENCE,
        "return suspect.seconds >= OBSERVED * (replica.heartbeat if expired else replica.ttl)",
        "return suspect.seconds >= OBSERVED * replica.heartbeat",
    ),
)

OF_CLAIMS = (
    mutant(
        "no_token_check",
        "only the current token may report, settle or give back",
        UPDATES,
        "if fire is None or fire.token != update.token:",
        "if fire is None:",
    ),
    mutant(
        "final_states_change",
        "only a running fire can be settled; final states never change",
        UPDATES,
        "    if fire.state is not State.RUNNING:\n        return False\n",
        "",
    ),
    mutant(
        "token_reused",
        "every claim has a higher token, also of a fire claimed before",
        CLAIMS,
        "token = max(record.token, rows.leader.era.first_token) + 1",
        "token = fire.token or max(record.token, rows.leader.era.first_token) + 1",
    ),
    mutant(
        "tombstone_forgets_the_token",
        "a job's last token outlives its removal",
        JOBS,
        "        declared_by=(),\n",
        "        declared_by=(),\n        token=0,\n",
    ),
    mutant(
        "giving_back_counts",
        "what was given back does not count as an attempt",
        UPDATES,
        "attempt=fire.attempt - 1)",
        "attempt=fire.attempt)",
    ),
    mutant(
        "checkpoint_lost",
        "a fire that waits to be run again keeps its checkpoint",
        LEDGER,
        "not_before=not_before, progress=None)",
        "not_before=not_before, progress=None, checkpoint=None)",
    ),
    mutant(
        "crash_repeats_everything",
        "a run cut off is repeated only if its job says so",
        LEDGER,
        'if job.after_crash == "rerun" and fire.crashes < job.crash_attempts',
        "if fire.crashes < job.crash_attempts",
    ),
    mutant(
        "crashes_unbounded",
        "a fire is run again after a crash at most crash_attempts times",
        LEDGER,
        "and fire.crashes < job.crash_attempts and",
        "and",
    ),
    mutant(
        "declared_dead_whatever_the_token",
        "who declares a replica dead ends the run they have seen, not a later one",
        FIRES,
        "if fire.state is not State.RUNNING or fire.token != token:",
        "if fire.state is not State.RUNNING:",
    ),
    mutant(
        "cancel_forgotten_by_a_retry",
        "what is to be cancelled is not run again",
        LEDGER,
        "if fire.cancel_requested:",
        "if False:",
    ),
    mutant(
        "cancel_not_noted",
        "a cancel of a running fire is kept for its replica",
        FIRES,
        "rows.fires.put(changed(fire, cancel_requested=True))",
        "pass",
    ),
    mutant(
        "manual_key_reused",
        "a manual fire is added once under its name",
        FIRES,
        "if existing is not None:",
        "if existing is not None and not existing.state.final:",
    ),
)

DECISIONS = (
    mutant(
        "past_moments_vanish",
        "every moment of an `at` has a row, also one that has passed when it is declared",
        CALENDARS,
        "        start = moment - datetime.resolution",
        "        break",
    ),
    mutant(
        "past_moments_run",
        "a moment long past when it is declared is missed, whatever the misfire policy",
        DECIDE,
        "elif fresh and any(gap.covers(fire.due_at) for gap in view.record.past):",
        "elif False:",
    ),
    mutant(
        "past_moments_overtaken",
        "a moment that comes too late for its turn is put on record",
        CALENDARS,
        "if known.known_after < moment <= since and not known.has(moment):",
        "if False:",
    ),
    mutant(
        "no_overlap_rule",
        "at most so many runs of a job at once",
        MODEL_JOBS,
        'return self.limit if self.kind == "allow" else 1',
        "return 1000",
    ),
    mutant(
        "overlap_counts_only_what_runs",
        "a fire counts as active until its final state, retry backoff included",
        DECIDE,
        "active = len(view.active)",
        "active = sum(1 for fire in view.active if fire.state is State.RUNNING)",
    ),
    mutant(
        "waiting_fires_ignore_a_lower_limit",
        "the limit holds for retries and reruns, too, when it is lowered",
        DECIDE,
        "room = min(room, view.record.job.overlap.at_once - running)",
        "",
    ),
    mutant(
        "skipped_because_of_the_dead",
        "nothing is skipped on account of a run that may be dead",
        DECIDE,
        "elif view.overdue:",
        "elif False:",
    ),
    mutant(
        "queue_without_end",
        "a queue holds as many as its policy says",
        DECIDE,
        "elif waiting_turn < overlap.limit:",
        "elif True:",
    ),
    mutant(
        "pause_ignored_at_due_time",
        "what falls due in a pause is skipped",
        DECIDE,
        "if fresh and view.record.paused_at(fire.due_at):",
        "if False:",
    ),
    mutant(
        "pause_ignored_by_what_waits",
        "while a pause lasts nothing scheduled starts",
        DECIDE,
        "candidates = [fire for fire in candidates if not fire.scheduled]",
        "pass",
    ),
    mutant(
        "pause_ignored_by_retries",
        "a pause holds retries and reruns as well",
        DECIDE,
        "if paused and fire.scheduled:",
        "if False:",
    ),
    mutant(
        "pause_ahead_cannot_be_ended",
        "a resume ends every pause, also where the clock stepped back",
        JOBS,
        "if record.pause_lasting(at.wall) is None:",
        "if not record.paused_at(at.wall):",
    ),
    mutant(
        "a_second_pause_loses_the_end",
        "a pause of a paused job keeps the end it does not name",
        JOBS,
        "until, note = until or lasting.until, note or lasting.note",
        "until, note = until, note or lasting.note",
    ),
    mutant(
        "retry_too_early",
        "a retry waits for its time",
        DECIDE,
        "or fire.not_before is None or fire.not_before > now:",
        "or fire.not_before is None:",
    ),
    mutant(
        "latest_keeps_two",
        'misfire="latest" runs one fire of a backlog',
        DECIDE,
        "keep, reason, refers_to = fresh[-1:], Reason.COALESCED, fresh[-1].key",
        "keep, reason, refers_to = fresh[-2:], Reason.COALESCED, fresh[-1].key",
    ),
    mutant(
        "backlog_decided_half_planned",
        "a backlog is decided when its calendar is planned up to now",
        DECIDE,
        "if view.record.behind_at(now):",
        "if False:",
    ),
    mutant(
        "misfire_skip_runs_late",
        'misfire="skip" runs nothing late',
        DECIDE,
        "keep = [fire for fire in fresh if _late(view, fire, now) <= job.misfire_after and fire.count == 1]",
        "keep = [fire for fire in fresh if fire.count == 1]",
    ),
    mutant(
        "catch_up_without_end",
        "catch-up is bounded, what waits from before included",
        DECIDE,
        "room = CATCH_UP_LIMIT - sum(1 for fire in others if fire.scheduled)",
        "room = CATCH_UP_LIMIT",
    ),
)

CALENDAR = (
    mutant(
        "plan_without_compare",
        "a plan is written only if version, cursor and end still stand",
        PLANNING,
        "if (head.version, head.cursor, head.until) != (plan.version, plan.cursor, plan.until):",
        "if head.version != plan.version:",
    ),
    mutant(
        "no_withdrawal_on_a_changed_trigger",
        "planned rows that are not due go when the trigger changes",
        CALENDARS,
        "    rows.fires.withdraw_planned(record.id, since)\n    version",
        "    version",
    ),
    mutant(
        "new_calendar_repeats_the_decided",
        "a new calendar begins after the last fire decided",
        CALENDARS,
        "    since = later(record, at.wall)\n    if not record.version:",
        "    since = at.wall\n    if not record.version:",
    ),
    mutant(
        "old_calendar_owes_nothing",
        "what an old calendar still owes is planned first",
        CALENDARS,
        "segments = ended(rows, record.segments, since)",
        "segments = ()",
    ),
    mutant(
        "queueing_is_no_decision",
        "a fire that was admitted to the queue is not planned again",
        CLAIMS,
        "        record = changed(record, decided_through=later(record, fire.due_at))\n",
        "",
    ),
    mutant(
        "orphans_stay_planned",
        "what is planned ahead goes when nobody knows the task any more",
        TARGETS,
        "    rows.fires.withdraw_planned(record.id, since)\n    for fire",
        "    for fire",
    ),
    mutant(
        "orphaned_at_once",
        "a task must be unknown for an hour before its fires are missed",
        TARGETS,
        "at.wall - target.unknown_since >= rows.orphaned_after:",
        "at.wall - target.unknown_since >= rows.orphaned_after / 10:",
    ),
    mutant(
        "never_orphaned",
        "what nobody has known for an hour is missed",
        TARGETS,
        "elif not target.orphaned and at.wall - target.unknown_since >= rows.orphaned_after:",
        "elif False:",
    ),
    mutant(
        "revision_ignored",
        "an older revision replaces nothing",
        DEFINITIONS,
        'return "changed" if put.revision >= existing.revision else "older revision"',
        'return "changed"',
    ),
    mutant(
        "flip_back",
        "a replaced definition does not come back while its successor is declared",
        DEFINITIONS,
        "if put.job.fingerprint in existing.earlier and others and not asked_for:",
        "if False:",
    ),
    mutant(
        "what_is_asked_for_is_a_flip_back",
        "a definition that somebody asks for now may be one that was replaced",
        DEFINITIONS,
        'asked_for = put.source == "api" or put.chosen',
        'asked_for = put.source == "api"',
        focus=("changes",),
    ),
    mutant(
        "chosen_by_one",
        "what was chosen while an application ran is declared by all who know the task",
        DEFINITIONS,
        "peers = sorted(knowing(put.job.lane)) if put.chosen else ()",
        "peers: list[str] = []",
        focus=("changes",),
    ),
    mutant(
        "another_version_removed",
        "what was read of a job is changed only if its trigger is still that one",
        JOBS,
        "if record is None or record.removed_at or change.version not in (None, record.version):",
        "if record is None or record.removed_at:",
        focus=("changes",),
    ),
    mutant(
        "another_applications_definition",
        "code does not replace what live replicas declare from another origin",
        DEFINITIONS,
        'if put.source == "code" and _is_anothers(existing, put, live, knowing):',
        "if False:",
    ),
    mutant(
        "a_moved_job_stays",
        "a job that was moved is of its new origin when the last old replica has gone",
        DEFINITIONS,
        "if replica.id != put.by and replica.id not in moved",
        "if replica.id != put.by",
    ),
    mutant(
        "code_undoes_what_was_made_by_hand",
        "code does not replace what was made by hand",
        DEFINITIONS,
        'return "unchanged" if same else "made by hand"',
        'return "unchanged" if same else "changed"',
    ),
    mutant(
        "a_change_overwrites_another",
        "a definition that was changed since it was read is not replaced",
        DEFINITIONS,
        "if put.expected is not None and version_of(existing) not in (put.expected, put.job.fingerprint):",
        "if False:",
    ),
    mutant(
        "removed_while_declared",
        "a job is not taken for abandoned while a live replica knows its task",
        JOBS,
        'if change.if_undeclared and (record.source != "code" or _is_declared(rows, at, record)):',
        "if False:",
    ),
)

OUTCOMES = (
    mutant(
        "failures_are_not_forgotten",
        "a success ends a row of failures",
        JOB_RECORDS,
        "failures = 0 if run.succeeded_at else self.failures_in_a_row + run.is_failure",
        "failures = self.failures_in_a_row + run.is_failure",
    ),
    mutant(
        "a_lost_run_is_not_the_last",
        "a run that was cut off is on the job's record",
        LEDGER,
        "keep(rows, at, after_end(rows, at, record, fire) if fire.state.final else record)",
        "keep(rows, at, record)",
    ),
)

NOTICES = (
    mutant(
        "a_cause_is_not_written",
        "a cause is in the outbox with the settlement it follows from",
        LEDGER,
        "return outbox.ended(rows, at, record.after_run(fire), fire)",
        "return record.after_run(fire)",
    ),
    mutant(
        "an_episode_is_never_closed",
        "a success ends what went on, and is told",
        OUTBOX,
        "return changed(record, episodes=()) if record.episodes else record",
        "return record",
    ),
    mutant(
        "a_rule_waits_for_the_leader",
        "a rule holds as soon as it is stored",
        OUTBOX,
        "    record = watched(stored_rules(rows), record)\n",
        "",
    ),
    mutant(
        "every_failure_is_told",
        "failures in a row are one cause",
        OUTBOX,
        "if any(each.rule == watch.rule and each.cause == cause for each in record.episodes):",
        "if False:",
    ),
)

UNREADABLE = (
    mutant(
        "unreadable_jobs_are_claimed",
        "a job of which a live fire cannot be read is set aside as a whole",
        TABLES,
        "return not self._broken or (job_id in self.rows and not self.aside(job_id))",
        "return job_id in self.rows",
        Edit(CLAIMS, "        if rows.jobs.aside(job_id):\n            continue\n", ""),
        focus=("rows",),
    ),
    mutant(
        "unreadable_definitions_are_replaced",
        "a definition that cannot be read is not overwritten",
        JOBS,
        "    if rows.jobs.aside(job.id):\n",
        "    if False:\n",
        focus=("rows",),
    ),
    mutant(
        "kept_values_are_dropped",
        "what a run keeps is written with its outcome, or neither is",
        UPDATES,
        "        if rows.jobs.get(fire.job_id) is None:\n            refuse_aside",
        "        if False:\n            refuse_aside",
        focus=("rows",),
    ),
    mutant(
        "unreadable_retries_run_again",
        "what waited when data was lost may have run, also if it could not be read just then",
        CLAIMS,
        "    record = _without_lost(rows, at, record)\n",
        "",
        focus=("rows",),
    ),
    mutant(
        "a_delayed_beat_looks_like_a_loss",
        "a presence that cannot be read is written anew with a count above all that its replica was told",
        PRESENCE,
        "max(broken.steps, request.seen.steps, least) + STEPS_OF_A_PRESENCE // 2",
        "request.seen.steps",
        focus=("rows",),
    ),
)

OF_DATA_LOSS = (
    mutant(
        "loss_not_noticed",
        "who was told more than the store knows proves a loss",
        DATA_LOSS,
        "    present = (seen.incarnation, seen.server) == (era.incarnation, era.server)\n",
        "    return False\n",
    ),
    mutant(
        "settling_is_not_counted",
        "updates count among the steps that can be missed",
        UPDATES,
        "if rows.may_lose_writes and is_counted(",
        "if False and is_counted(",
    ),
    mutant(
        "doubtful_ends_are_counted",
        "as long as it is doubtful what was lost, ends of runs do not make up for steps that are missing",
        UPDATES,
        'return any(accepted) and rows.leader.era.standing == "settled"',
        "return any(accepted)",
    ),
    mutant(
        "old_tokens_outrank_new_ones",
        "a new incarnation outranks all old tokens",
        REPLICAS,
        "return self.incarnation << 40",
        "return 0",
    ),
    mutant(
        "restarts_with_one_number_look_alike",
        "two starts of a server are told apart, whatever it has forgotten",
        DATA_LOSS,
        'standing="restarted", server=server)',
        'standing="restarted")',
    ),
    mutant(
        "lost_fires_run_again",
        "what may have run before the loss is not run again",
        DECIDE,
        "elif view.lost_through is not None and fire.due_at <= view.lost_through:",
        "elif False:",
    ),
    mutant(
        "lost_retries_run_again",
        "what waited to be run again when data was lost may have run",
        DATA_LOSS,
        "                finish(rows, at, fire, State.LOST, Reason.DATA_LOSS)\n",
        "                pass\n",
        Edit(CLAIMS, "    record = _without_lost(rows, at, record)\n", ""),
    ),
    mutant(
        "lost_runs_go_on",
        "a loss ends every run the store knew of",
        DATA_LOSS,
        "                crash(rows, at, fire, Reason.DATA_LOSS)\n",
        "                pass\n",
    ),
    mutant(
        "leaving_in_doubt_gives_back",
        "what a leaver claimed before a restart of the server may have run",
        PRESENCE,
        "if fire.token <= rows.leader.era.first_token:\n",
        "if False:\n",
    ),
)

STORE: tuple[Mutant, ...] = (
    *OF_PRESENCE,
    *OF_CLAIMS,
    *DECISIONS,
    *CALENDAR,
    *NOTICES,
    *UNREADABLE,
    *OUTCOMES,
    *OF_DATA_LOSS,
)
