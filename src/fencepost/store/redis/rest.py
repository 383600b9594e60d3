"""Steps of the general path that only this store has: what a script has left of a claim or of updates, and what follows
when the server is not what it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fencepost.clock import Moment
from fencepost.store.backend import Backend
from fencepost.store.base import Claim, Claimed, ClaimRequest, Seen, Update, Updated
from fencepost.store.reader import RowReader
from fencepost.store.redis.find import RedisFind
from fencepost.store.redis.load import RedisLoad
from fencepost.store.redis.save import RedisSave
from fencepost.store.redis.step import Step
from fencepost.store.redis.values import stamp
from fencepost.store.rules import data_loss
from fencepost.store.rules.claims import Closed, decide_job, next_moments
from fencepost.store.rules.leadership import is_leader
from fencepost.store.rules.ledger import stored_job
from fencepost.store.rules.updates import update_claims
from fencepost.store.unit_of_work import UnitOfWork
from fencepost.store.unreadable import UnreadableRows


class RedisWork(UnitOfWork):
    """A unit of work, and the step it is."""

    def __init__(self, step: Step, targets: dict[str, tuple[str, ...]], registry: UnreadableRows) -> None:
        reader = RowReader(registry)
        load = RedisLoad(step, reader, targets)
        save = RedisSave(step, reader, load)
        super().__init__(Backend(reader, load, RedisFind(step, reader, load, save), save))
        self.at = step.at
        self.step = step


@dataclass(frozen=True, slots=True)
class Decided:
    """What became of a job's fires."""

    claims: list[Claim]
    closed: Closed


def claim_left(
    rows: RedisWork, at: Moment, request: ClaimRequest, jobs: Mapping[int, str], room: int
) -> tuple[dict[int, Decided], Claimed]:
    """Go on with a claim under its number, with these jobs. What became of each, by its place in the order of
    what was due; and what else there is to say."""
    rows.step.batch.add("ZREM", rows.step.keys.deciding, *jobs.values())
    replica = rows.replicas.get(request.replica)
    if replica is None or replica.claim_no != request.number:
        return {}, Claimed(wake_in=0.0)
    rows.step.check_replica(replica.id)
    found: dict[int, Decided] = {}
    rows.preload(at.wall, jobs=list(jobs.values()))
    for place, id in jobs.items():
        left = room - sum(len(each.claims) for each in found.values())
        if request.room and left <= 0:
            break
        if rows.jobs.aside(id):
            continue
        found[place] = Decided([], Closed())
        decide_job(rows, at, replica, stored_job(rows, id), left, found[place].claims, found[place].closed)
    leads = is_leader(rows, request.replica, request.term)
    wake_in, ahead = next_moments(rows, at, replica, leads, request.ahead)
    return found, Claimed(wake_in=wake_in, steps=replica.steps, ahead=ahead)


def update_left(
    rows: RedisWork, at: Moment, replica: str, updates: Sequence[Update], counted: bool
) -> Updated:
    """Go on with updates; `counted`: as one step, with those settled before."""
    rows.may_lose_writes = not counted
    return update_claims(rows, at, replica, updates)


def server_restarted(rows: RedisWork, at: Moment, before: str, run: str, keeps_writes: bool) -> None:
    """The server's process is another one. Unless it keeps what it has acknowledged, that is doubtful now."""
    step = rows.step
    step.batch.check(step.keys.meta, "run", before)
    step.batch.do("HSET", step.keys.meta, "run", run)
    if not keeps_writes:
        data_loss.restarted(rows, at, run)


def store_emptied(rows: RedisWork, at: Moment, history: str, seen: Seen) -> None:
    """The store was emptied: `history`, which a replica remembers, is not the one it has."""
    step = rows.step
    step.batch.check(step.keys.meta, f"gone:{history}", "")
    step.batch.do("HSET", step.keys.meta, f"gone:{history}", stamp(at.wall))
    data_loss.begin_anew(rows, at, seen)
