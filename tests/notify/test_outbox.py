"""What is told of jobs, in virtual time: rules, episodes, the notifier's batches, failing channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from fencepost import Scheduler, every
from fencepost.errors import ConfigurationError, DeliveryFailed
from fencepost.model.notices import ALERTS, Causes, Notice
from fencepost.notify import failed, failed_in_a_row, late, missed, no_success_for, recovered
from fencepost.replica import notifier
from fencepost.store.outbox import Outbox, OutboxQuery
from fencepost.store.rules import outbox as rules
from fencepost.testing import VirtualTime, virtual


@dataclass(eq=False)
class Board:
    """A channel that keeps what it is given, and fails when told to."""

    name: str = "board"
    causes: Causes = ALERTS
    batches: list[list[Notice]] = field(default_factory=list)
    failure: DeliveryFailed | None = None
    attempts: int = 0

    async def deliver(self, notices: Sequence[Notice]) -> None:
        self.attempts += 1
        if self.failure is not None:
            raise self.failure
        self.batches.append(list(notices))

    @property
    def told(self) -> list[tuple[str, str]]:
        return [(each.cause, each.job_id) for batch in self.batches for each in batch]


@dataclass
class Application:
    scheduler: Scheduler
    fails: bool = False


def application() -> Application:
    app = Application(Scheduler("memory://"))

    @app.scheduler.job(every(seconds=60), id="report")
    def report() -> None:
        if app.fails:
            raise ValueError("no rows")

    @app.scheduler.job(every(seconds=60), id="other")
    def other() -> None:
        pass

    return app


def outbox(t: VirtualTime, aside: bool = False) -> Outbox:
    return t.do(t.store.notices.outbox(OutboxQuery(aside=aside)))


@pytest.mark.parametrize("failures", [20, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_regression_and_its_recovery_not_every_failure(failures: int) -> None:
    app, board = application(), Board()
    app.scheduler.notify(board, on=failed | recovered)
    with virtual(app.scheduler, deliver=True) as t:
        t.advance(minutes=3)
        assert board.told == []
        app.fails = True
        t.advance(minutes=failures)
        assert board.told == [("failed", "report")]
        app.fails = False
        t.advance(minutes=5)
        assert board.told == [("failed", "report"), ("recovered", "report")]
    begun = board.batches[0][0]
    assert (begun.error, begun.state, begun.count) == ("ValueError: no rows", "failed", 1)
    assert begun.fire is not None


def test_a_recovery_is_named_by_the_success_that_ends_the_episode() -> None:
    """A store that has lost a recovery may tell the next one after more failures: receivers count by ids."""
    found: list[list[str]] = []
    for failures in (1, 2):
        app, board = application(), Board()
        app.scheduler.notify(board, on=failed | recovered, jobs="report")
        app.fails = True
        with virtual(app.scheduler, deliver=True) as t:
            t.advance(minutes=failures, seconds=30)
            app.fails = False
            t.advance(minutes=1)
        found.append([each.id for batch in board.batches for each in batch])
    (begun, ended), (begun_again, ended_later) = found
    assert begun == begun_again
    assert ended != ended_later


def test_nothing_is_sent_in_virtual_time_unless_asked_for() -> None:
    app, board = application(), Board()
    app.scheduler.notify(board, on=failed)
    app.fails = True
    with virtual(app.scheduler) as t:
        t.advance(minutes=2)
        assert [each.cause for each in t.notices] == ["failed"]
    assert board.batches == []


def test_so_many_failures_in_a_row_of_some_jobs() -> None:
    app, board = application(), Board()
    app.scheduler.notify(board, on=failed_in_a_row(3), jobs="rep*")
    app.fails = True
    with virtual(app.scheduler, deliver=True) as t:
        t.advance(minutes=2, seconds=30)
        assert board.told == []
        t.advance(minutes=10)
    assert board.told == [("failed_in_a_row", "report")]
    assert board.batches[0][0].count == 3


def test_no_success_for_long_is_found_on_time() -> None:
    app, board = application(), Board()
    app.scheduler.notify(board, on=no_success_for("10m") | recovered, jobs="report")
    with virtual(app.scheduler, deliver=True) as t:
        t.advance(minutes=5, seconds=1)
        app.fails = True
        t.advance(minutes=9, seconds=58)
        assert board.told == []
        t.advance(seconds=5)
        assert board.told == [("no_success", "report")]
        app.fails = False
        t.advance(minutes=30)
        assert board.told == [("no_success", "report"), ("recovered", "report")]


def test_what_was_missed_in_a_downtime_is_told_after_it() -> None:
    app, board = application(), Board()
    app.scheduler.notify(board, on=missed, jobs="report")
    with virtual(app.scheduler, deliver=True) as t:
        t.advance(minutes=3)
        t.stop()
        t.advance(hours=1)
        t.start()
        t.advance(minutes=2)
    assert board.told == [("missed", "report")]


def test_a_receiver_that_is_down_gets_all_afterwards() -> None:
    app, board = application(), Board()
    app.scheduler.notify(board, on=failed | recovered, jobs="report")
    board.failure = DeliveryFailed("connection refused")
    with virtual(app.scheduler, deliver=True) as t:
        for fails in (True, False, True, False):
            app.fails = fails
            t.advance(minutes=1)
        t.advance(minutes=10)
        report = outbox(t).report["channels"]["board"]
        assert (report["error"], board.batches) == ("connection refused", [])
        assert board.attempts < 25  # with longer and longer waits
        board.failure = None
        t.advance(minutes=6)
        assert [cause for cause, _ in board.told] == ["failed", "recovered", "failed", "recovered"]
        assert len({each.id for batch in board.batches for each in batch}) == 4
        after = outbox(t)
        assert (after.notices, after.report["channels"]["board"]["error"]) == ((), None)


def test_a_receiver_that_never_answers_costs_bounded_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MOST_WAITING", 10)
    monkeypatch.setattr(notifier, "KEEP_TRYING", timedelta(minutes=20))
    app, board = application(), Board()
    app.scheduler.notify(board, on=frozenset({"started", "failed"}), jobs="report")
    board.failure = DeliveryFailed("HTTP 500")
    app.fails = True
    with virtual(app.scheduler, deliver=True) as t:
        t.advance(minutes=15)
        assert outbox(t).waiting == {"board": 11}
        joined = outbox(t).notices[-1].notice
        assert (joined.cause, joined.count) == ("overflow", 20)
        t.advance(minutes=60)
        assert outbox(t).waiting["board"] <= 11
        assert 0 < outbox(t).aside["board"] <= 10


def test_a_notice_that_is_refused_for_good_is_set_aside() -> None:
    app, board = application(), Board()
    app.scheduler.notify(board, on=failed, jobs="report")
    board.failure, app.fails = DeliveryFailed("HTTP 410", permanent=True), True
    with virtual(app.scheduler, deliver=True) as t:
        t.advance(minutes=2)
        assert outbox(t).waiting == {}
        [aside] = outbox(t, aside=True).notices
        assert (aside.error, aside.attempts, board.attempts) == ("HTTP 410", 1, 1)


def test_a_channel_that_fails_does_not_delay_another() -> None:
    app, board, stuck = application(), Board(), Board("stuck")
    stuck.failure, app.fails = DeliveryFailed("HTTP 500"), True
    app.scheduler.notify(stuck, on=failed)
    app.scheduler.notify(board, on=failed)
    with virtual(app.scheduler, deliver=True) as t:
        t.advance(minutes=1, seconds=1)
    assert board.told == [("failed", "report")]


def test_quiet_hours_and_a_digest() -> None:
    app, board, calm = application(), Board(), Board("calm")
    app.scheduler.notify(board, on=failed | recovered, jobs="report", digest="10m")
    app.scheduler.notify(calm, on=failed | recovered, jobs="report", quiet="12:00-12:30 UTC")
    with virtual(app.scheduler, deliver=True) as t:
        assert (t.now.hour, t.now.minute) == (12, 0)
        for fails in (True, False, True):
            app.fails = fails
            t.advance(minutes=1)
        t.advance(minutes=5)
        assert (board.batches, calm.batches) == ([], [])
        t.advance(minutes=5)
        assert [[each.cause for each in batch] for batch in board.batches] == [
            ["failed", "recovered", "failed"]
        ]
        assert calm.batches == []
        t.advance(minutes=20)
        assert [cause for cause, _ in calm.told] == ["failed", "recovered", "failed"]


def test_what_is_refused_when_it_is_declared() -> None:
    scheduler = Scheduler("memory://")
    with pytest.raises(ConfigurationError, match="is no channel"):
        scheduler.notify("https://example.com")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="quiet"):
        scheduler.notify(Board(), quiet="at night")
    scheduler.notify(Board("one"))
    with pytest.raises(ConfigurationError, match="two channels"):
        scheduler.notify(Board("one"))
    with pytest.raises(ConfigurationError, match="not known"):
        scheduler.notify(Board("two"), on=frozenset({"exploded"}))
    with pytest.raises(ConfigurationError):
        late("0s")
