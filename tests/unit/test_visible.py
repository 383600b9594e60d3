"""What a caller may see of records that name other jobs."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import pytest

from fencepost import limit
from fencepost.insight.visible import EVERYTHING, NAMING, UNSEEN, Sight
from fencepost.model import FireRecord, Job, JobEvent, JobRecord, State
from fencepost.model.notices import Notice
from fencepost.model.triggers.following import After
from fencepost.store.base import Claim
from fencepost.store.codec import from_json, to_json

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
TEAM = Sight(lambda id: id.startswith("team."))
FOLLOWS = After(("team.extract", "hidden.extract", "hidden.load"))
SHOWN = {"type": "after", "parents": ["team.extract", UNSEEN], "on": "succeeded"}

KNOWN: dict[type[Any], str] = {
    FireRecord: "key job_id due_at scheduled state count last_due_at args token replica claim_no attempt crashes "
    "settled not_before started_at finished_at error checkpoint progress cancel_requested attempts output repeats "
    "result jitter_seconds trace remote " + " ".join(NAMING),
    Job: "id target trigger args overlap misfire misfire_after retry timeout after_crash crash_attempts execute_on "
    "tags owner limits description jitter priority engine engine_options",
    JobRecord: "job fingerprint created_at changed_at version segments revision declared_by earlier pauses past "
    "removed_at source origin rivals token decided_through tail kept last_run last_success_at failures_in_a_row "
    "children watch episodes backfills skips held_back limit unknown_since",
    JobEvent: "job_id at kind version since trigger until note by token before after",
    Notice: "id cause job_id fire state reason error at count details",
}


@pytest.mark.parametrize("kind", KNOWN, ids=lambda kind: kind.__name__)
def test_every_field_is_known_to_name_other_jobs_or_not_to(kind: type[Any]) -> None:
    """A new field: does it name another job, or a fire of one? Then `Sight` must hide that. Add it here then."""
    assert {field.name for field in fields(kind)} - set(KNOWN[kind].split()) == set()


def test_a_fire_names_no_hidden_one() -> None:
    row = FireRecord("team.load!x", "team.load", NOON, reason="limit full", refers_to="hidden.load!x")
    assert TEAM.fire(row).refers_to == UNSEEN
    assert TEAM.fire(FireRecord("team.a!x", "team.a", NOON, by="after hidden.b!x")).by == f"after {UNSEEN}"
    asked = FireRecord(
        "team.a!x", "team.a", NOON, by="ada@example.org", refers_to="team.a@2026-11-15T12:00:00.000000Z"
    )
    assert TEAM.fire(asked) is asked
    assert EVERYTHING.fire(row) is row


def test_of_a_hidden_fire_only_the_state_is_left() -> None:
    row = FireRecord("hidden.a!x", "hidden.a", NOON, state=State.RUNNING, args={"of": "hidden"}, replica="r")
    assert TEAM.fire(row) == FireRecord(UNSEEN, UNSEEN, NOON, state=State.RUNNING)


def test_a_job_names_no_hidden_parent_or_child() -> None:
    job = Job("team.load", "load", FOLLOWS, limits=(limit("warehouse", 1),))
    record = JobRecord(job, "f", NOON, NOON, children=("hidden.c", "team.c"))
    seen = TEAM.job(record)
    assert seen.job.trigger is not None
    assert (seen.job.trigger.to_json(), seen.children) == (SHOWN, ("team.c",))
    assert seen.job.trigger.describe() == f"after team.extract and {UNSEEN}"
    plain = JobRecord(Job("team.load", "load"), "f", NOON, NOON)
    assert TEAM.job(plain) is plain


def test_a_job_s_history_names_no_hidden_parent() -> None:
    change = {"trigger": FOLLOWS.to_json(), "owner": "ada"}
    event = JobEvent("team.load", NOON, "defined", 1, NOON, FOLLOWS.to_json(), before=change, after=change)
    seen = TEAM.event(event)
    assert (seen.trigger, seen.before, seen.after) == (SHOWN, *2 * [{"trigger": SHOWN, "owner": "ada"}])
    assert EVERYTHING.event(event) is event


def test_a_worker_can_read_its_claim() -> None:
    claim = Claim(
        FireRecord("team.load!x", "team.load", NOON, by="after hidden.load!x"), Job("team.load", "t", FOLLOWS)
    )
    sent = to_json(TEAM.claim(claim))
    assert "hidden" not in str(sent)
    read: Claim = from_json(Claim, sent)
    assert (read.job.id, read.job.trigger, read.fire.by) == ("team.load", None, f"after {UNSEEN}")
    assert TEAM.claim(Claim(claim.fire, Job("team.load", "t"))).job == Job("team.load", "t")


def test_an_audit_names_no_hidden_fire() -> None:
    why = "hidden.a@2026-11-15T12:00:00.000000Z let it go, and team.b!x, and no row of the ledger has it"
    assert TEAM.text(why) == f"{UNSEEN} let it go, and team.b!x, and no row of the ledger has it"


def test_a_notice_names_no_hidden_fire() -> None:
    notice = Notice("n", "missed", "team.a", "team.a!x", "missed", "limit full (hidden.b!x)", None, NOON)
    assert TEAM.notice(notice).reason == f"limit full ({UNSEEN})"
    assert EVERYTHING.notice(notice) is notice
