"""What becomes of due fires, as tables: fires on the left, fates on the right."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fencepost.model import FireRecord, Gap, Job, JobRecord, Overlap, Segment, State, fire_key
from fencepost.model.triggers import every
from fencepost.store.rules.decide import DecidedJob, Decision, decide

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def due(seconds: float, state: State = State.PENDING, **fields: Any) -> FireRecord:
    """A scheduled fire that fell due so long ago. Its key is its name in the tables."""
    return FireRecord(f"{seconds:g}", "job", ago(seconds), state=state, **fields)


def manual(seconds: float, state: State = State.PENDING) -> FireRecord:
    return FireRecord(f"m{seconds:g}", "job", ago(seconds), scheduled=False, state=state)


def running(seconds: float) -> FireRecord:
    return due(seconds, State.RUNNING, replica="a", token=1)


def waiting(seconds: float, in_seconds: float, scheduled: bool = True) -> FireRecord:
    not_before = NOW + timedelta(seconds=in_seconds)
    return due(seconds, State.WAITING, replica="a", not_before=not_before, scheduled=scheduled)


def record_of(behind: bool = False, pauses: tuple[Gap, ...] = (), **policies: Any) -> JobRecord:
    overlap = Overlap.parse(policies.pop("overlap", "skip"))
    job = Job("job", "work", every(minutes=1, anchor=ago(10_000)), overlap=overlap, **policies)
    next_at = ago(5) if behind else NOW + timedelta(seconds=60)
    assert job.trigger is not None
    segments = (Segment(1, job.trigger, cursor=ago(60), next_at=next_at),)
    return JobRecord(job, job.fingerprint, NOW, NOW, segments=segments, pauses=pauses)


def decided(
    fires: list[FireRecord],
    active: list[FireRecord] | None = None,
    room: int = 10,
    overdue: bool = False,
    unknown: tuple[Gap, ...] = (),
    **job: Any,
) -> Decision:
    view = DecidedJob(record_of(**job), fires, active or [], overdue, unknown)
    return decide(view, NOW, room)


def fates(decision: Decision) -> dict[str, str]:
    """Key → what became of it. What is not listed was left alone."""
    found = {f.key: "queued" for f in decision.queued}
    found |= {f.key: "claimed" for f in decision.claims}
    for closing in decision.closings:
        reason = f"{closing.state.value}: {closing.reason}"
        found[closing.fire.key] = f"{reason} ({closing.refers_to})" if closing.refers_to else reason
    return found


PAUSE = (Gap(ago(100), ago(50)),)
STRETCH = due(500, count=300, last_due_at=ago(201))


@pytest.mark.parametrize(
    ("fires", "job", "expected"),
    [
        pytest.param([], {}, {}, id="nothing is due"),
        pytest.param([due(5)], {}, {"5": "claimed"}, id="due now"),
        pytest.param([due(30)], {"misfire": "skip"}, {"30": "claimed"}, id="as late as it may be"),
        pytest.param([due(31)], {"misfire": "skip"}, {"31": "missed: misfire"}, id="too late"),
        pytest.param([due(31)], {"misfire": "latest"}, {"31": "claimed"}, id="latest runs the only one"),
        pytest.param([due(31)], {"misfire": "all"}, {"31": "claimed"}, id="all runs the only one"),
        pytest.param(
            [due(150), due(90), due(30)],
            {"misfire": "latest"},
            {"150": "missed: coalesced (30)", "90": "missed: coalesced (30)", "30": "claimed"},
            id="latest coalesces into the newest",
        ),
        pytest.param(
            [due(90), due(60), due(30), due(10)],
            {"misfire": "skip", "overlap": "allow(5)"},
            {"90": "missed: misfire", "60": "missed: misfire", "30": "claimed", "10": "claimed"},
            id="skip keeps what is not late",
        ),
        pytest.param(
            [due(90), due(60), due(10)],
            {"misfire": "all"},
            {"90": "claimed", "60": "queued", "10": "queued"},
            id="all queues them under any overlap",
        ),
        pytest.param(
            [STRETCH, due(100), due(40)],
            {"misfire": "all"},
            {"500": "missed: beyond the catch-up limit", "100": "claimed", "40": "queued"},
            id="all never runs a stretch",
        ),
        pytest.param(
            [STRETCH, due(100)],
            {"misfire": "skip", "misfire_after": timedelta(hours=1)},
            {"500": "missed: misfire", "100": "claimed"},
            id="a stretch is late however long late is",
        ),
        pytest.param(
            [STRETCH, due(100)],
            {"misfire": "latest"},
            {"500": "missed: coalesced (100)", "100": "claimed"},
            id="a stretch is coalesced",
        ),
        pytest.param([due(90), due(30)], {"behind": True}, {}, id="late and behind: undecided"),
        pytest.param([due(30)], {"behind": True}, {"30": "claimed"}, id="not late though behind"),
        pytest.param(
            [due(90), manual(40)],
            {"behind": True},
            {"m40": "claimed"},
            id="manual fires do not wait for plans",
        ),
        pytest.param([manual(9999)], {"misfire": "skip"}, {"m9999": "claimed"}, id="manual is never late"),
        pytest.param(
            [due(9999, State.QUEUED)], {"misfire": "skip"}, {"9999": "claimed"}, id="queued is never late"
        ),
        pytest.param(
            [due(110), due(100), due(60), due(50), due(10)],
            {"pauses": PAUSE, "overlap": "allow(9)", "misfire_after": timedelta(minutes=9)},
            {
                "110": "claimed",
                "100": "skipped: paused",
                "60": "skipped: paused",
                "50": "claimed",
                "10": "claimed",
            },
            id="a pause covers its beginning, not its end",
        ),
        pytest.param(
            [due(80), due(40)],
            {"pauses": PAUSE, "misfire": "latest"},
            {"80": "skipped: paused", "40": "claimed"},
            id="paused comes before misfire",
        ),
        pytest.param(
            [due(80), due(40)],
            {"pauses": PAUSE, "behind": True},
            {"80": "skipped: paused"},
            id="paused is decided though behind",
        ),
        pytest.param(
            [due(5), manual(3)],
            {"pauses": (Gap(ago(9)),)},
            {"5": "skipped: paused", "m3": "claimed"},
            id="manual runs in a pause",
        ),
        pytest.param(
            [due(5, State.QUEUED)], {"pauses": (Gap(ago(9)),)}, {}, id="a pause holds what is queued"
        ),
        pytest.param([due(20)], {"pauses": (Gap(ago(9)),)}, {}, id="a pause holds what was due before it"),
        pytest.param(
            [due(90), due(40)],
            {"pauses": (Gap(ago(9)),), "misfire": "skip"},
            {},
            id="what a pause holds is not late yet",
        ),
        pytest.param(
            [due(20), due(10)],
            {"overlap": "skip"},
            {"20": "claimed", "10": "skipped: overlap (20)"},
            id="skip",
        ),
        pytest.param(
            [due(20), due(15), due(10)],
            {"overlap": "queue"},
            {"20": "claimed", "15": "queued", "10": "skipped: queue full (20)"},
            id="queue",
        ),
        pytest.param(
            [due(25), due(20), due(15), due(10)],
            {"overlap": "queue(2)"},
            {"25": "claimed", "20": "queued", "15": "queued", "10": "skipped: queue full (25)"},
            id="queue(2)",
        ),
        pytest.param(
            [due(20), due(15), due(10)],
            {"overlap": "allow(2)"},
            {"20": "claimed", "15": "claimed", "10": "skipped: overlap (20)"},
            id="allow(2)",
        ),
        pytest.param([manual(9), manual(8)], {}, {"m9": "claimed"}, id="manual fires wait for their turn"),
        pytest.param(
            [manual(9), due(5)],
            {},
            {"m9": "claimed", "5": "skipped: overlap (m9)"},
            id="a manual fire is overlapped like any",
        ),
    ],
)
def test_with_nothing_active(fires: list[FireRecord], job: dict[str, Any], expected: dict[str, str]) -> None:
    assert fates(decided(fires, **job)) == expected


@pytest.mark.parametrize(
    ("active", "fires", "job", "expected"),
    [
        pytest.param([running(60)], [due(5)], {}, {"5": "skipped: overlap (60)"}, id="skip"),
        pytest.param([running(60)], [due(5)], {"overlap": "queue"}, {"5": "queued"}, id="queue"),
        pytest.param(
            [running(60)],
            [due(9, State.QUEUED), due(5)],
            {"overlap": "queue"},
            {"5": "skipped: queue full (60)"},
            id="queue full",
        ),
        pytest.param(
            [running(60)],
            [manual(9), due(5)],
            {"overlap": "queue"},
            {"5": "queued"},
            id="manual fires take no place in the queue",
        ),
        pytest.param([running(60)], [due(5)], {"overlap": "allow(2)"}, {"5": "claimed"}, id="allow(2)"),
        pytest.param(
            [running(60), running(50)],
            [due(5)],
            {"overlap": "allow(2)"},
            {"5": "skipped: overlap (60)"},
            id="allow(2) is full",
        ),
        pytest.param([running(60)], [manual(5)], {}, {}, id="manual waits"),
        pytest.param(
            [waiting(60, 100)], [due(5)], {}, {"5": "skipped: overlap (60)"}, id="retry backoff is active"
        ),
        pytest.param(
            [waiting(60, 0)], [due(5)], {}, {"60": "claimed", "5": "skipped: overlap (60)"}, id="retry due"
        ),
        pytest.param([waiting(60, 0.001)], [], {}, {}, id="retry not due"),
        pytest.param([waiting(60, -5)], [], {"pauses": (Gap(ago(9)),)}, {}, id="a pause holds a retry"),
        pytest.param(
            [waiting(60, -5)],
            [],
            {"pauses": PAUSE},
            {"60": "claimed"},
            id="a pause that is over holds nothing",
        ),
        pytest.param(
            [waiting(60, -5, scheduled=False)],
            [],
            {"pauses": (Gap(ago(9)),)},
            {"60": "claimed"},
            id="a pause does not hold a manual retry",
        ),
        pytest.param(
            [running(200)],
            [due(120), due(60)],
            {"misfire": "latest"},
            {"120": "missed: coalesced (60)", "60": "skipped: overlap (200)"},
            id="misfire comes before overlap",
        ),
        pytest.param(
            [running(200)],
            [due(120), due(60)],
            {"misfire": "all"},
            {"120": "queued", "60": "queued"},
            id="all is queued behind what runs",
        ),
    ],
)
def test_with_something_active(
    active: list[FireRecord], fires: list[FireRecord], job: dict[str, Any], expected: dict[str, str]
) -> None:
    assert fates(decided(fires, active, **job)) == expected


@pytest.mark.parametrize(
    ("room", "expected"),
    [(0, []), (1, ["60"]), (2, ["60", "20"]), (3, ["60", "20", "15"]), (9, ["60", "20", "15"])],
)
def test_no_more_is_claimed_than_there_is_room_for(room: int, expected: list[str]) -> None:
    """What waits to be claimed again comes first. With no room left nothing is skipped either."""
    decision = decided([due(20), due(15), due(10)], [waiting(60, -1)], room, overlap="allow(3)")
    assert [fire.key for fire in decision.claims] == expected
    full = room >= 3
    assert [closing.fire.key for closing in decision.closings] == (["10"] if full else [])


class TestAgainstAnOverdueRun:
    def test_nothing_is_skipped(self) -> None:
        decision = decided([due(10), due(5)], [running(60)], overdue=True)
        assert fates(decision) == {}
        assert decision.contended

    def test_nothing_is_queued(self) -> None:
        decision = decided([due(5)], [running(60)], overdue=True, overlap="queue")
        assert fates(decision) == {}
        assert decision.contended

    def test_what_may_run_beside_it_runs(self) -> None:
        decision = decided([due(5)], [running(60)], overdue=True, overlap="allow(2)")
        assert fates(decision) == {"5": "claimed"}
        assert not decision.contended

    def test_gaps_and_misfires_are_decided_all_the_same(self) -> None:
        decision = decided([due(80), due(45), due(40)], [running(200)], overdue=True, pauses=PAUSE)
        assert fates(decision) == {"80": "skipped: paused", "45": "missed: coalesced (40)"}
        assert decision.contended


def test_what_nobody_knew_is_missed_and_a_pause_comes_first() -> None:
    unknown = (Gap(ago(100), ago(35)),)
    decision = decided([due(90), due(40), due(10)], unknown=unknown, pauses=PAUSE)
    assert fates(decision) == {
        "90": "skipped: paused",
        "40": "missed: no replica knew the task",
        "10": "claimed",
    }


def test_all_is_bounded_by_a_hundred_the_newest() -> None:
    fires = [due(1000 - n) for n in range(130)]
    decision = decided(fires, misfire="all", overlap="allow(500)", room=500)
    assert [fire.key for fire in decision.claims] == [fire.key for fire in fires[30:]]
    assert {closing.fire.key for closing in decision.closings} == {fire.key for fire in fires[:30]}


def test_what_is_closed_comes_in_the_order_of_due_times() -> None:
    decision = decided([due(150), due(80), due(45), due(10), due(5)], pauses=PAUSE)
    assert [closing.fire.key for closing in decision.closings] == ["150", "80", "45", "10"]


def test_nothing_given_in_is_changed() -> None:
    fires = [due(90), due(10)]
    view = DecidedJob(record_of(), fires, [], False)
    first, second = decide(view, NOW, 5), decide(view, NOW, 5)
    assert first == second
    assert fires == [due(90), due(10)]


def test_a_view_speaks_in_real_keys_too() -> None:
    fire = FireRecord(fire_key("job", ago(5)), "job", ago(5))
    assert [claimed.key for claimed in decided([fire]).claims] == ["job@2026-11-15T11:59:55.000000Z"]
