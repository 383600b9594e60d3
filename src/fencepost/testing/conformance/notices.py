"""Notifications: causes are written with what they follow from, once per cause."""

from __future__ import annotations

from fencepost.model import FireRecord, State
from fencepost.model.triggers import every
from fencepost.model.watching import NotificationRule
from fencepost.store.base import JobPage
from fencepost.store.outbox import NoticeChange, Outbox, OutboxQuery, Waiting
from fencepost.testing.conformance.harness import Harness


async def watch(harness: Harness, *on: str, jobs: str = "", channel: str = "ops") -> None:
    assert await harness.store.notices.put_rules(channel, [NotificationRule(channel, on, jobs)])


async def waiting(harness: Harness, channel: str = "", aside: bool = False) -> list[Waiting]:
    found: Outbox = await harness.store.notices.outbox(OutboxQuery(channel, aside))
    return list(found.notices)


async def causes(harness: Harness) -> list[str]:
    return [each.notice.cause for each in await waiting(harness)]


async def next_run(harness: Harness, state: State) -> FireRecord:
    await harness.fall_due()
    fire = await harness.claim("a")
    assert await harness.settle(fire, state)
    return fire


class NoticeRules:
    async def test_without_a_rule_nothing_is_written(self, harness: Harness) -> None:
        await harness.settle(await harness.running(), State.FAILED)
        assert await harness.store.notices.outbox(OutboxQuery()) == Outbox()

    async def test_failures_in_a_row_are_one_notice_and_one_recovery(self, harness: Harness) -> None:
        await watch(harness, "failed", "recovered")
        first = await harness.running()
        await harness.settle(first, State.FAILED)
        for _ in range(3):
            await next_run(harness, State.FAILED)
        assert await causes(harness) == ["failed"]
        await next_run(harness, State.SUCCEEDED)
        await next_run(harness, State.SUCCEEDED)
        begun, ended = await waiting(harness)
        assert (begun.notice.fire, begun.notice.job_id, begun.channel) == (first.key, "job", "ops")
        assert (begun.notice.cause, ended.notice.cause) == ("failed", "recovered")
        assert begun.notice.id != ended.notice.id
        await next_run(harness, State.FAILED)
        assert await causes(harness) == ["failed", "recovered", "failed"]
        assert len({each.notice.id for each in await waiting(harness)}) == 3

    async def test_a_success_without_a_failure_before_is_no_recovery(self, harness: Harness) -> None:
        await watch(harness, "failed", "recovered")
        await harness.settle(await harness.running())
        assert await causes(harness) == []

    async def test_recoveries_can_be_asked_for_alone(self, harness: Harness) -> None:
        await watch(harness, "recovered")
        await harness.settle(await harness.running(), State.FAILED)
        assert await causes(harness) == []
        await next_run(harness, State.SUCCEEDED)
        assert await causes(harness) == ["recovered"]

    async def test_so_many_failures_in_a_row(self, harness: Harness) -> None:
        await watch(harness, "failed_in_a_row:3", "recovered")
        await harness.settle(await harness.running(), State.FAILED)
        await next_run(harness, State.FAILED)
        assert await causes(harness) == []
        await next_run(harness, State.FAILED)
        await next_run(harness, State.FAILED)
        (found,) = await waiting(harness)
        assert (found.notice.cause, found.notice.count) == ("failed_in_a_row", 3)

    async def test_a_lost_run(self, harness: Harness) -> None:
        await watch(harness, "lost")
        fire, term = await harness.running(), await harness.elect("b")
        await harness.bury("b", term, "a")
        (found,) = await waiting(harness)
        assert (found.notice.cause, found.notice.fire, found.notice.state) == ("lost", fire.key, "lost")

    async def test_missed_fires_are_one_notice(self, harness: Harness) -> None:
        await watch(harness, "missed")
        await harness.settle(await harness.running())
        await harness.fall_due(300)
        await harness.settle(await harness.claim("a"))
        assert await causes(harness) == ["missed"]

    async def test_a_rule_for_some_jobs(self, harness: Harness) -> None:
        await watch(harness, "failed", jobs="rep*")
        await harness.settle(await harness.running("job"), State.FAILED)
        assert await causes(harness) == []
        await harness.remove("job")
        await harness.settle(await harness.running("report"), State.FAILED)
        assert await causes(harness) == ["failed"]

    async def test_each_run_is_notified_if_asked_for(self, harness: Harness) -> None:
        await watch(harness, "started", "succeeded", "failed")
        await harness.settle(await harness.running())
        await next_run(harness, State.FAILED)
        await next_run(harness, State.FAILED)
        await next_run(harness, State.SUCCEEDED)
        expected = ["started", "succeeded", "started", "failed", "started", "failed", "started", "succeeded"]
        assert sorted(await causes(harness)) == sorted(expected)
        assert len({each.notice.id for each in await waiting(harness)}) == 8

    async def test_rules_reach_jobs_that_are_there(self, harness: Harness) -> None:
        term = await harness.elect("a")
        fire = await harness.running()
        await watch(harness, "failed")
        checked = await harness.store.notices.watch_jobs("a", term, JobPage(10))
        assert checked is not None
        assert (checked.after, checked.next_in) == ("", {})
        await harness.settle(fire, State.FAILED)
        assert await causes(harness) == ["failed"]

    async def test_only_the_leader_checks_for_what_did_not_happen(self, harness: Harness) -> None:
        term = await harness.elect("a")
        assert await harness.store.notices.watch_jobs("a", term - 1, JobPage(10)) is None
        assert await harness.store.notices.watch_jobs("b", term, JobPage(10)) is None

    async def test_a_late_start(self, harness: Harness) -> None:
        await watch(harness, "late:20", "recovered")
        term = await harness.elect("a")
        await harness.define("job", every(minutes=1))
        await harness.plan()
        checked = await harness.store.notices.watch_jobs("a", term, ids=["job"])
        assert checked is not None
        assert checked.next_in == {"job": 80.0}
        await harness.elapse(79)
        checked = await harness.store.notices.watch_jobs("a", term, ids=["job"])
        assert checked is not None
        assert checked.next_in == {"job": 1.0}
        assert await causes(harness) == []
        await harness.elapse(1)
        for _ in range(2):
            await harness.store.notices.watch_jobs("a", term, ids=["job"])
        assert await causes(harness) == ["late"]
        await harness.settle(await harness.claim("a"))
        assert await causes(harness) == ["late", "recovered"]

    async def test_no_success_for_long(self, harness: Harness) -> None:
        await watch(harness, "no_success:300")
        term = await harness.elect("a")
        await harness.settle(await harness.running())
        await harness.elapse(290)
        checked = await harness.store.notices.watch_jobs("a", term, ids=["job"])
        assert checked is not None
        assert checked.next_in == {"job": 10.0}
        await harness.elapse(10)
        for _ in range(2):
            await harness.store.notices.watch_jobs("a", term, JobPage(10))
        assert await causes(harness) == ["no_success"]

    async def test_a_paused_job_is_not_late(self, harness: Harness) -> None:
        await watch(harness, "late:20", "no_success:30")
        term = await harness.elect("a")
        await harness.define("job", every(minutes=1))
        await harness.plan()
        await harness.pause("job")
        await harness.elapse(200)
        await harness.store.notices.watch_jobs("a", term, ids=["job"])
        assert await causes(harness) == []

    async def test_what_was_delivered_is_gone(self, harness: Harness) -> None:
        await watch(harness, "failed")
        await harness.settle(await harness.running(), State.FAILED)
        (found,) = await waiting(harness)
        failed = NoticeChange(found.key, "failed", "refused")
        assert await harness.store.notices.update_outbox([failed], {"channels": {"ops": {}}}) == (True,)
        (found,) = await waiting(harness)
        assert (found.attempts, found.error) == (1, "refused")
        assert await harness.store.notices.update_outbox([NoticeChange(found.key, "delivered")]) == (True,)
        assert await harness.store.notices.update_outbox([NoticeChange(found.key, "delivered")]) == (False,)
        left = await harness.store.notices.outbox(OutboxQuery())
        assert (left.notices, left.report, left.waiting) == ((), {"channels": {"ops": {}}}, {})

    async def test_one_that_is_set_aside_can_be_tried_again(self, harness: Harness) -> None:
        await watch(harness, "failed")
        await harness.settle(await harness.running(), State.FAILED)
        (found,) = await waiting(harness)
        await harness.store.notices.update_outbox([NoticeChange(found.key, "aside", "gone")])
        assert await waiting(harness) == []
        (aside,) = await waiting(harness, "ops", aside=True)
        assert (aside.notice, aside.error) == (found.notice, "gone")
        assert (await harness.store.notices.outbox(OutboxQuery())).aside == {"ops": 1}
        await harness.store.notices.update_outbox([NoticeChange(aside.key, "retry")])
        (again,) = await waiting(harness)
        assert (again.notice, again.attempts) == (found.notice, 0)
        await harness.store.notices.update_outbox([NoticeChange(again.key, "drop")])
        assert await waiting(harness) == []

    async def test_rules_replace_those_of_the_same_channel(self, harness: Harness) -> None:
        await watch(harness, "failed")
        await watch(harness, "lost", channel="pager")
        await watch(harness, "missed")
        rules = (await harness.store.notices.outbox(OutboxQuery())).rules
        assert {(rule.channel, rule.on) for rule in rules} == {("ops", ("missed",)), ("pager", ("lost",))}
        assert not await harness.store.notices.put_rules("ops", [NotificationRule("ops", ("missed",))])
        assert await harness.store.notices.put_rules("ops", [])

    async def test_a_rule_holds_as_soon_as_it_is_stored(self, harness: Harness) -> None:
        fire = await harness.running()
        await watch(harness, "failed", "recovered")
        await harness.settle(fire, State.FAILED)  # no leader has looked at the job since
        await next_run(harness, State.SUCCEEDED)
        assert await causes(harness) == ["failed", "recovered"]

    async def test_a_rule_made_by_hand_holds_beside_those_of_code(self, harness: Harness) -> None:
        made = NotificationRule("ops", ("lost",), name="night", by="Ann")
        assert await harness.store.notices.change_rule("night", made, "Ann")
        assert not await harness.store.notices.change_rule("night", made, "Ann")
        await watch(harness, "failed")
        await watch(harness, "missed")
        rules = (await harness.store.notices.outbox(OutboxQuery())).rules
        assert {(rule.name, rule.on, rule.source) for rule in rules} == {
            ("night", ("lost",), "api"),
            ("", ("missed",), "code"),
        }
        fire, term = await harness.running(), await harness.elect("b")
        await harness.bury("b", term, "a")
        assert [each.notice.fire for each in await waiting(harness)] == [fire.key]

    async def test_who_changed_a_rule_is_kept(self, harness: Harness) -> None:
        made = NotificationRule("ops", ("lost",), name="night", by="Ann")
        changed = NotificationRule("ops", ("failed",), "report", name="night", by="Bob")
        for rule, by in ((made, "Ann"), (changed, "Bob"), (None, "Eve")):
            assert await harness.store.notices.change_rule("night", rule, by)
            await harness.elapse(1)
        assert not await harness.store.notices.change_rule("night", None, "Eve")
        found = await harness.store.notices.outbox(OutboxQuery(changes=True))
        assert [(each.by, each.rule) for each in found.changes] == [
            ("Eve", None),
            ("Bob", changed),
            ("Ann", made),
        ]
        assert found.rules == ()
        assert (await harness.store.notices.outbox(OutboxQuery())).changes == ()

    async def test_what_two_rules_ask_for_alike_is_notified_once(self, harness: Harness) -> None:
        await watch(harness, "failed")
        await harness.store.notices.change_rule(
            "night", NotificationRule("ops", ("failed",), name="night"), "Ann"
        )
        await harness.settle(await harness.running(), State.FAILED)
        assert await causes(harness) == ["failed"]

    async def test_the_outbox_is_read_in_pages(self, harness: Harness) -> None:
        await watch(harness, "started", "succeeded")
        await harness.settle(await harness.running())
        await next_run(harness, State.SUCCEEDED)
        everything = [each.key for each in await waiting(harness)]
        first = await harness.store.notices.outbox(OutboxQuery(limit=3))
        rest = await harness.store.notices.outbox(OutboxQuery(after=first.notices[-1].key))
        assert [each.key for each in (*first.notices, *rest.notices)] == everything
        assert (first.waiting, len(everything)) == ({"ops": 4}, 4)
