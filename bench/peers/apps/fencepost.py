"""Fencepost, with 100 slots."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bench.peers.work import Work

from fencepost import Event, Fire, Scheduler, every


def prepare(work: Work) -> None:
    """Replicas declare their jobs when they start."""


def replica(work: Work) -> None:
    scheduler = Scheduler(store=work.url, slots=100)
    for number in work.numbers():
        trigger = every(seconds=work.period, anchor=work.first(number) - work.every)
        scheduler.job(trigger, id=f"job{number}")(body(work, number))
    scheduler.events.subscribe(lambda event: noticed(work, event))
    scheduler.run()


def body(work: Work, number: int) -> Callable[[Fire], Awaitable[None]]:
    async def fired(fire: Fire) -> None:
        work.note(number, fire.due_at.timestamp())

    return fired


def noticed(work: Work, event: Event) -> None:
    if event.kind == "replica.joined":
        work.ready()
    elif event.kind == "leader.elected":
        work.leads()
