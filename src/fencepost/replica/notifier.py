"""The notifier: the leader gives what waits in the outbox to channels, and looks for what did not happen.

A notice is marked as delivered after its channel has taken it: a crash in between delivers it again, under the same id.
Channels are user code and networks: each works on a thread of its own, one batch at a time, so that one that hangs or
fails delays neither a fire nor another channel.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from fencepost.errors import DeliveryFailed, StoreUnavailable
from fencepost.model import Json
from fencepost.model.notices import Notice
from fencepost.model.triggers import iso
from fencepost.model.values import clean_text
from fencepost.model.watching import NotificationRule
from fencepost.replica.service import Service
from fencepost.runs.threads import DaemonThreads
from fencepost.store.base import JobPage
from fencepost.store.outbox import NoticeChange, Outbox, OutboxQuery, Waiting

if TYPE_CHECKING:
    from fencepost.notify.channel import Channel
    from fencepost.replica.replica import Replica

log = logging.getLogger("fencepost")

POLL = 2.0
"""Seconds between two looks at the outbox; a hint comes sooner."""
POLL_INLINE = 600.0
"""Where a test owns the time: hints do not get lost there."""
QUIET_POLL = 5.0
"""Seconds between two looks at notices that must wait."""
BATCH = 20
"""Notices delivered before they are marked."""
JOBS_AT_ONCE = 100
"""Looked at in one step, which holds up other writers of a SQLite file for 5 ms or so."""
WALK_EVERY = 60.0
"""Seconds after which jobs that are new are looked for, if a rule asks for what did not happen."""
LONGEST_DELIVERY = 120.0
"""Seconds after which a channel counts as hanging."""
FIRST_DELAY, LONGEST_DELAY = 1.0, 300.0
SUSPICIOUS = 5
"""Attempts after which a notice is set aside if its channel takes others."""
MOST_SUSPECTS = 3
KEEP_TRYING = timedelta(hours=24)


@dataclass(frozen=True)
class Subscription:
    """A channel of this process, and its rules."""

    channel: Channel
    rules: tuple[NotificationRule, ...]


Run = Callable[[Coroutine[Any, Any, None]], Coroutine[Any, Any, None]]
"""Awaits a delivery, wherever it is run."""


@dataclass
class Delivery:
    """What became of one batch."""

    changes: list[NoticeChange] = field(default_factory=list)
    delivered: int = 0
    error: str | None = None
    """Why it was cut short."""
    retry_after: float | None = None


class Notifier(Service):
    shortest = 0.25

    def __init__(self, replica: Replica, subscriptions: Sequence[Subscription], inline: bool = False) -> None:
        super().__init__(replica)
        run: Callable[[str], Run] = (lambda _: _here) if inline else in_thread
        self._couriers = {
            each.channel.name: Courier(replica, each.channel, run(each.channel.name))
            for each in subscriptions
        }
        self._rules = {each.channel.name: each.rules for each in subscriptions}
        self.poll = POLL_INLINE if inline else POLL
        self._term: int | None = None
        self._walked: tuple[NotificationRule, ...] | None = None
        """The rules that all jobs have."""
        self._walk_after: str | None = ""
        """The job after which the walk goes on; None: it is over."""
        self._walk_again = 0.0
        self._due: list[tuple[float, str]] = []
        """A heap: when to look at which job again."""
        self._reported: Mapping[str, Json] | None = None

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            for courier in self._couriers.values():
                courier.stop()

    async def step(self) -> float | None:
        term = self.replica.term()
        if term is None:
            self._term = None
            return self.replica.settings.heartbeat.total_seconds()
        if term != self._term:
            await self._take_over(term)
        found = await self.replica.store.notices.outbox(OutboxQuery(limit=1))
        await self._see_to_rules(found)
        if not await self._check_jobs(term):
            self._term = None
            return None
        await self._report(found)
        for courier in self._waiting(found):
            courier.go(found.rules, self.wake)
        return 0.0 if self._walk_after is not None else self._next_turn(found)

    def _next_turn(self, found: Outbox) -> float:
        steady = self.replica.clock.steady()
        turns = [self.poll, *(courier.not_before - steady for courier in self._waiting(found))]
        if self._due:
            turns.append(self._due[0][0] - steady)
        return max(0.0, min(turns))

    def _waiting(self, found: Outbox) -> list[Courier]:
        """Those that have something to deliver, and time."""
        return [each for name, each in self._couriers.items() if found.waiting.get(name) and not each.busy]

    # --- rules, and what did not happen -----------------------------------------------------------------

    async def _take_over(self, term: int) -> None:
        self._due, self._walk_after, self._walked, self._reported = [], "", None, None
        self._term = term

    async def declare(self) -> None:
        """Before the jobs of this process are: from their first fire on they have its rules."""
        await self._put_rules(await self.replica.store.notices.outbox(OutboxQuery(limit=1)))

    async def _put_rules(self, found: Outbox) -> None:
        for name, rules in self._rules.items():
            if {rule for rule in found.rules if rule.channel == name and not rule.name} != set(rules):
                await self.replica.store.notices.put_rules(name, rules)

    async def _see_to_rules(self, found: Outbox) -> None:
        """What this process declares is stored: also after a store has lost its data."""
        await self._put_rules(found)
        if found.rules != self._walked:
            self._walked, self._walk_after = found.rules, ""
        elif self._walk_after is None and any(rule.watch.absences for rule in found.rules):
            is_time = self.replica.clock.steady() >= self._walk_again
            self._walk_after = "" if is_time else None

    async def _check_jobs(self, term: int) -> bool:
        """A page of the walk, or those that are due. False: this replica does not lead any more."""
        store, steady = self.replica.store, self.replica.clock.steady()
        if self._walk_after is not None:
            page = JobPage(JOBS_AT_ONCE, self._walk_after)
            checked = await store.notices.watch_jobs(self.replica.id, term, page)
            if checked is not None:
                self._walk_after = checked.after or None
                self._walk_again = steady + WALK_EVERY
        else:
            ids = self._due_now(steady)
            if not ids:
                return True
            checked = await store.notices.watch_jobs(self.replica.id, term, None, ids)
        if checked is None:
            return False
        known = {id for _, id in self._due}
        for id, seconds in checked.next_in.items():
            if id not in known:
                heapq.heappush(self._due, (steady + seconds, id))
        return True

    def _due_now(self, steady: float) -> list[str]:
        ids: list[str] = []
        while self._due and self._due[0][0] <= steady and len(ids) < JOBS_AT_ONCE:
            ids.append(heapq.heappop(self._due)[1])
        return ids

    # --- how channels fare --------------------------------------------------------------------------------

    async def _report(self, found: Outbox) -> None:
        """For those who look. Written when it has changed."""
        channels = {name: courier.standing() for name, courier in self._couriers.items()}
        report = {"replica": self.replica.id, "channels": channels}
        if report != self._reported or report != found.report:
            await self.replica.store.notices.update_outbox([], report)
            self._reported = report

    @property
    def couriers(self) -> Mapping[str, Courier]:
        return self._couriers


class Courier:
    """Works for one channel."""

    def __init__(self, replica: Replica, channel: Channel, run: Run) -> None:
        self._replica = replica
        self._channel = channel
        self._run = run
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        self.not_before = 0.0
        self._failing_since: datetime | None = None
        self._error: str | None = None

    @property
    def busy(self) -> bool:
        return self._task is not None and not self._task.done()

    def standing(self) -> dict[str, Json]:
        since = iso(self._failing_since) if self._failing_since else None
        return {"failing_since": since, "error": self._error}

    def go(self, rules: Sequence[NotificationRule], done: Callable[[], None]) -> None:
        """Deliver a batch, unless it is at one, or waits for its next attempt."""
        if self.busy or self._replica.clock.steady() < self.not_before:
            return
        self._task = asyncio.create_task(self._batch({rule.id: rule for rule in rules}))
        self._task.add_done_callback(lambda _: done())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _batch(self, rules: Mapping[str, NotificationRule]) -> None:
        store, name = self._replica.store, self._channel.name
        try:
            found = await store.notices.outbox(OutboxQuery(name, limit=BATCH))
            groups = self._groups(found.notices, rules)
            delivery = Delivery()
            if groups:
                await self._deliver(groups, delivery)
            self._note(delivery)
            if delivery.changes:
                await store.notices.update_outbox(delivery.changes)
            if not delivery.changes:  # quiet hours, or a digest that is not full
                self.not_before = self._replica.clock.steady() + QUIET_POLL
        except StoreUnavailable as error:
            self._replica.store_failed(error)
        except Exception as error:
            self._replica.errors.log(f"channel {name}", error)
            self._fail(f"{type(error).__name__}", None)

    def _groups(
        self, notices: Sequence[Waiting], rules: Mapping[str, NotificationRule]
    ) -> list[list[Waiting]]:
        """What is delivered together, in order: one each, or a digest. Not what must wait."""
        now = self._replica.clock.wall()
        groups: list[list[Waiting]] = []
        digests: dict[str, list[Waiting]] = {}
        for each in notices:
            rule = rules.get(each.rule)
            if rule is not None and rule.quiet_until(now):
                continue
            if rule is not None and rule.digest:
                digests.setdefault(each.rule, []).append(each)
            else:
                groups.append([each])
        for rule_id, some in digests.items():
            full = len(notices) >= BATCH
            if full or now - some[0].notice.at >= timedelta(seconds=rules[rule_id].digest):
                groups.append(some)
        return groups

    async def _deliver(self, groups: Sequence[Sequence[Waiting]], delivery: Delivery) -> None:
        suspects: list[Waiting] = []
        for group in groups:
            failure = await self._attempt(group)
            if failure is None:
                delivery.delivered += len(group)
                delivery.changes += [NoticeChange(each.key, "delivered") for each in group]
                delivery.changes += [_aside(each, "its channel takes others") for each in suspects]
                suspects = []
            elif failure.permanent:
                delivery.changes += [_aside(each, failure.reason) for each in group]
            else:
                self._failed(group, failure, delivery, suspects)
                if len(group) > 1 or group[0].attempts + 1 < SUSPICIOUS or len(suspects) >= MOST_SUSPECTS:
                    break

    def _failed(
        self,
        group: Sequence[Waiting],
        failure: DeliveryFailed,
        delivery: Delivery,
        suspects: list[Waiting],
    ) -> None:
        delivery.error, delivery.retry_after = failure.reason, failure.retry_after
        oldest = self._replica.clock.wall() - KEEP_TRYING
        for each in group:
            if each.notice.at < oldest:
                delivery.changes.append(_aside(each, failure.reason))
            else:
                delivery.changes.append(NoticeChange(each.key, "failed", failure.reason))
                suspects.append(each)

    async def _attempt(self, group: Sequence[Waiting]) -> DeliveryFailed | None:
        try:
            async with asyncio.timeout(LONGEST_DELIVERY):
                await self._run(self._channel.deliver([self._whole(each.notice) for each in group]))
        except DeliveryFailed as failure:
            return failure
        except TimeoutError:
            return DeliveryFailed(f"it has not come back within {LONGEST_DELIVERY:g} s")
        except Exception as error:
            return DeliveryFailed(clean_text(f"{type(error).__name__}: {error}", 300))
        return None

    def _whole(self, notice: Notice) -> Notice:
        """With what this process knows of itself."""
        settings = self._replica.settings
        here = {"namespace": settings.namespace, "dashboard_url": settings.dashboard_url}
        return replace(notice, details={**notice.details, **here})

    def _note(self, delivery: Delivery) -> None:
        replica, name = self._replica, self._channel.name
        aside = sum(1 for change in delivery.changes if change.kind == "aside")
        for kind, number in (("delivered", delivery.delivered), ("set_aside", aside)):
            for _ in range(number):
                replica.emit(f"notice.{kind}", detail=name)
        if delivery.error is not None:
            replica.emit("notice.failed", detail=f"{name}: {delivery.error}")
            self._fail(delivery.error, delivery.retry_after)
        elif delivery.delivered:
            self._failures, self._failing_since, self._error = 0, None, None
            self.not_before = 0.0

    def _fail(self, error: str, retry_after: float | None) -> None:
        self._failures += 1
        delay = min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(self._failures - 1, 10))
        delay *= self._replica.chance.uniform(0.5, 1.0)
        self.not_before = self._replica.clock.steady() + max(delay, min(retry_after or 0.0, 3600.0))
        self._failing_since = self._failing_since or self._replica.clock.wall()
        self._error = error


def _aside(waiting: Waiting, why: str) -> NoticeChange:
    return NoticeChange(waiting.key, "aside", waiting.error or why)


async def _here(delivery: Coroutine[Any, Any, None]) -> None:
    await delivery


def in_thread(name: str) -> Run:
    """Each delivery gets an event loop of its own, on the channel's own thread."""
    threads = DaemonThreads(f"fencepost-notify-{name}", 1)
    at_work: list[asyncio.Future[None]] = []

    async def run(delivery: Coroutine[Any, Any, None]) -> None:
        if at_work and not at_work[0].done():
            delivery.close()
            raise DeliveryFailed("an earlier delivery has not come back")
        answer = asyncio.get_running_loop().run_in_executor(threads, asyncio.run, delivery)
        at_work[:] = [answer]
        answer.add_done_callback(lambda late: late.cancelled() or late.exception())
        await asyncio.shield(answer)

    return run
