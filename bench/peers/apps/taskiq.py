"""taskiq's scheduler with its list queue and list schedule source on Valkey, one worker.

Its jobs are not told their due time, so the schedule source passes on the second in which the scheduler sent them.
All intervals begin when the scheduler starts: with a period above 1 s all fires would come at once.
"""

from __future__ import annotations

import asyncio
import time

from bench.peers.work import Work
from taskiq import ScheduledTask, TaskiqScheduler
from taskiq.api import run_receiver_task
from taskiq.cli.scheduler.run import SchedulerLoop
from taskiq_redis import ListQueueBroker, ListRedisScheduleSource


class Source(ListRedisScheduleSource):
    def pre_send(self, task: ScheduledTask) -> None:
        task.args = [task.args[0], int(time.time())]


def prepare(work: Work) -> None:
    async def add_schedules() -> None:
        source = ListRedisScheduleSource(work.url)
        for number in work.numbers():
            await source.add_schedule(
                ScheduledTask(
                    task_name="body",
                    labels={},
                    args=[number],
                    kwargs={},
                    schedule_id=str(number),
                    interval=work.period,
                )
            )

    asyncio.run(add_schedules())


def replica(work: Work) -> None:
    async def run() -> None:
        source = Source(work.url)
        scheduler = TaskiqScheduler(broker(work), sources=[source])
        await source.startup()
        await scheduler.startup()
        work.ready()
        await SchedulerLoop(scheduler).run()

    asyncio.run(run())


def worker(work: Work) -> None:
    async def run() -> None:
        queue = broker(work)
        await queue.startup()
        work.ready()
        await run_receiver_task(queue)

    asyncio.run(run())


def broker(work: Work) -> ListQueueBroker:
    made = ListQueueBroker(work.url)

    @made.task(task_name="body")
    async def body(number: int, due: int) -> None:
        work.note(number, due)

    return made
