"""Which definition is in force: two applications on one store, code and jobs made by hand, jobs gone from a file."""

from __future__ import annotations

from dataclasses import replace

from fencepost.model import Origin, Rival
from fencepost.model.triggers import every
from fencepost.store.base import ChangeJob
from fencepost.testing.conformance.harness import TTL, Harness, job_of

SHOP = Origin("shop:jobs.py", module="jobs", distribution="shop", file="jobs.py")
BILLING = Origin("/srv/billing.py", module="billing", file="/srv/billing.py")
OURS, THEIRS, EARLIER = (job_of("job", every(minutes=n)) for n in (1, 2, 3))


class OriginRules:
    async def test_a_definition_carries_its_origin_and_source(self, harness: Harness) -> None:
        backup = replace(SHOP, command="pg_dump --all")
        await harness.put(OURS, origin=backup)
        record = await harness.job("job")
        assert (record.source, record.origin, record.rivals) == ("code", backup, ())

    async def test_another_application_does_not_replace_a_definition(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.join("b")
        await harness.put(OURS, by="a", origin=SHOP)
        refused = await harness.put(THEIRS, by="b", origin=BILLING)
        assert (refused.outcome, refused.refused, refused.origin) == ("other origin", True, SHOP)
        record = await harness.job("job")
        assert (record.job, record.origin, record.rivals) == (OURS, SHOP, (Rival("b", BILLING),))
        assert (await harness.put(THEIRS, by="b", origin=BILLING)).outcome == "other origin"
        assert (await harness.put(OURS, by="a", origin=SHOP)).outcome == "unchanged"
        assert (await harness.job("job")).rivals == (Rival("b", BILLING),)

    async def test_an_equal_definition_of_another_application_is_noticed(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.join("b")
        await harness.put(OURS, by="a", origin=SHOP)
        assert (await harness.put(OURS, by="b", origin=BILLING)).outcome == "other origin"
        assert (await harness.job("job")).rivals == (Rival("b", BILLING),)

    async def test_a_revision_says_nothing_about_another_application(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.join("b")
        await harness.put(OURS, by="a", origin=SHOP, revision=1)
        assert (await harness.put(THEIRS, by="b", origin=BILLING, revision=2)).outcome == "other origin"

    async def test_a_replica_counts_although_it_never_wrote_the_definition(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.put(OURS, by="a", origin=SHOP)
        await harness.join("a2")
        assert (await harness.put(OURS, by="a2", origin=SHOP)).outcome == "unchanged"
        await harness.store.leave("a")
        await harness.join("b")
        assert (await harness.put(THEIRS, by="b", origin=BILLING)).outcome == "other origin"

    async def test_a_deploy_moves_a_job(self, harness: Harness) -> None:
        """Old replicas are replaced one by one; the first new one to ask after that takes over."""
        for name in ("old1", "old2"):
            await harness.join(name)
            await harness.put(OURS, by=name, origin=SHOP)
        for old, new in (("old1", "new1"), ("old2", "new2")):
            await harness.join(new)
            assert (await harness.put(THEIRS, by=new, origin=BILLING)).outcome == "other origin"
            await harness.store.leave(old)
        assert (await harness.put(THEIRS, by="new1", origin=BILLING)).outcome == "changed"
        record = await harness.job("job")
        assert (record.job, record.origin, record.rivals) == (THEIRS, BILLING, ())
        assert (await harness.put(THEIRS, by="new2", origin=BILLING)).outcome == "unchanged"

    async def test_a_replica_of_an_older_revision_is_not_in_the_way_of_its_own_application(
        self, harness: Harness
    ) -> None:
        """It is refused for its revision alone, as all others at work have moved; that it has moved, too, is noted."""
        await harness.join("old")
        await harness.put(OURS, by="old", origin=SHOP, revision=2)
        await harness.store.leave("old")
        for name in ("earlier", "new"):
            await harness.join(name)
        assert (await harness.put(THEIRS, by="new", origin=BILLING, revision=3)).outcome == "other origin"
        earlier = await harness.put(EARLIER, by="earlier", origin=BILLING, revision=1)
        assert earlier.outcome == "older revision"
        assert (await harness.put(THEIRS, by="new", origin=BILLING, revision=3)).outcome == "changed"

    async def test_a_draining_replica_blocks_no_other_origin(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.join("b")
        await harness.put(OURS, by="a", origin=SHOP)
        await harness.heartbeat("a", draining=True)
        assert (await harness.put(OURS, by="b", origin=BILLING)).outcome == "unchanged"
        assert (await harness.job("job")).origin == BILLING

    async def test_neither_does_one_that_is_overdue(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.put(OURS, by="a", origin=SHOP)
        await harness.advance(TTL + 1)
        await harness.join("b")
        assert (await harness.put(THEIRS, by="b", origin=BILLING)).outcome == "changed"

    async def test_neither_does_one_that_does_not_know_the_task(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.put(OURS, by="a", origin=SHOP)
        await harness.heartbeat("a", targets=("play",))
        await harness.join("b")
        assert (await harness.put(THEIRS, by="b", origin=BILLING)).outcome == "changed"

    async def test_an_unknown_origin_blocks_no_other_origin(self, harness: Harness) -> None:
        """As of what was stored before there were origins."""
        await harness.join("a")
        await harness.join("b")
        await harness.put(OURS, by="a")
        assert (await harness.put(OURS, by="b", origin=SHOP)).outcome == "unchanged"
        assert (await harness.job("job")).origin == SHOP
        assert (await harness.put(THEIRS, by="a")).outcome == "changed"
        assert (await harness.job("job")).origin is None

    async def test_a_rival_that_has_ended_is_forgotten_with_the_next_note(self, harness: Harness) -> None:
        for name in ("a", "b", "c"):
            await harness.join(name)
        await harness.put(OURS, by="a", origin=SHOP)
        await harness.put(THEIRS, by="b", origin=BILLING)
        await harness.store.leave("b")
        await harness.put(THEIRS, by="c", origin=BILLING)
        assert (await harness.job("job")).rivals == (Rival("c", BILLING),)


class SourceRules:
    async def test_code_does_not_undo_what_was_made_by_hand(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.put(OURS, by="a", origin=SHOP)
        assert (await harness.put(THEIRS, source="api")).outcome == "changed"
        record = await harness.job("job")
        assert (record.job, record.source, record.origin) == (THEIRS, "api", SHOP)
        for revision in (None, 7):
            refused = await harness.put(OURS, by="a", origin=SHOP, revision=revision)
            assert (refused.outcome, refused.refused) == ("made by hand", True)
        assert (await harness.job("job")).job == THEIRS

    async def test_code_that_declares_the_same_makes_it_its_own(self, harness: Harness) -> None:
        await harness.put(OURS, origin=SHOP)
        await harness.put(THEIRS, source="api")
        assert (await harness.put(THEIRS, origin=SHOP)).outcome == "unchanged"
        assert (await harness.job("job")).source == "code"
        assert (await harness.put(OURS, origin=SHOP)).outcome == "changed"

    async def test_what_was_made_by_hand_says_which_code_it_is_held_against(self, harness: Harness) -> None:
        await harness.put(THEIRS, source="api")
        assert (await harness.job("job")).origin is None
        assert (await harness.put(OURS, origin=SHOP)).outcome == "made by hand"
        assert (await harness.job("job")).origin == SHOP

    async def test_a_person_may_go_back_although_replicas_declare_the_newer_one(
        self, harness: Harness
    ) -> None:
        await harness.join("a")
        await harness.put(OURS, by="a", origin=SHOP)
        await harness.put(THEIRS, by="a", origin=SHOP)
        assert (await harness.put(OURS, source="api")).outcome == "changed"

    async def test_without_replace_nothing_is_replaced_by_hand(self, harness: Harness) -> None:
        await harness.put(OURS, origin=SHOP)
        assert (await harness.put(THEIRS, source="api", replace=False)).outcome == "exists"
        assert (await harness.put(OURS, source="api", replace=False)).outcome == "unchanged"
        assert (await harness.job("job")).source == "code"

    async def test_what_was_removed_may_be_declared_again(self, harness: Harness) -> None:
        await harness.put(OURS, origin=SHOP)
        await harness.put(THEIRS, source="api")
        await harness.remove("job")
        assert (await harness.put(OURS, origin=SHOP)).outcome == "changed"
        record = await harness.job("job")
        assert (record.job, record.source, record.origin) == (OURS, "code", SHOP)


class AbandonedRules:
    async def test_a_job_is_not_removed_while_a_live_replica_knows_its_task(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.put(OURS, by="a", origin=SHOP)
        remove = ChangeJob("job", "remove", "deleted", "b", if_undeclared=True)
        assert await harness.store.change_job(remove) is None
        await harness.heartbeat("a", targets=("play",))
        removed = await harness.store.change_job(remove)
        assert removed is not None
        assert removed.removed_at is not None
        last = (await harness.store.history("job"))[-1]
        assert (last.kind, last.note, last.by) == ("removed", "deleted", "b")

    async def test_nor_while_it_was_made_by_hand(self, harness: Harness) -> None:
        await harness.put(THEIRS, source="api")
        assert await harness.store.change_job(ChangeJob("job", "remove", if_undeclared=True)) is None

    async def test_who_is_overdue_or_about_to_leave_declares_nothing(self, harness: Harness) -> None:
        for name in ("a", "b"):
            await harness.join(name)
        await harness.put(OURS, by="a", origin=SHOP)
        await harness.heartbeat("a", draining=True)
        await harness.advance(TTL + 1)
        assert await harness.store.change_job(ChangeJob("job", "remove", if_undeclared=True)) is not None
