"""The keys, and what is behind them. `<p>` is the prefix, `fencepost:<namespace>` unless the URL gives another.

| key | type | |
|---|---|---|
| `<p>:leader` | hash | the lease, and which history of the store this is |
| `<p>:job:<id>:<moment>` | string | a fire that is *running*, as long as it runs |
| `<p>:fire:<id>:<moment>` | string | a fire that waits and is more than its moment: queued, by hand, to be retried |
| `<p>:live:<id>` | sorted set | a job's fires that are not final, by due time |
| `<p>:done:<id>` | sorted set | its final fires, by due time |
| `<p>:jobs` | hash | definitions |
| `<p>:hot:<id>` | hash | what changes with a job's fires; `edition` grows with every change to any of them |
| `<p>:events:<id>` | list | its history |
| `<p>:look:<kind>`, `<p>:look:<kind>:<target>`, `<p>:first` | sorted sets, hash | which jobs must be looked at when |
| `<p>:priorities` | set | those that jobs have or had, without 0 |
| `<p>:deciding` | sorted set | jobs that a replica is just deciding with care, and until when others leave them to it |
| `<p>:plan` | sorted set | which calendars must be expanded when |
| `<p>:replica:<id>`, `<p>:replicas` | hash, set | presence |
| `<p>:held:<replica>` | set | what it is running; also by `engine:<name>` |
| `<p>:engines` | set | the owners of runs that are engines |
| `<p>:knows:<replica>`, `<p>:knowers`, `<p>:unknown` | set, hash, sorted set | who knows which task |
| `<p>:targets` | hash | the tasks that jobs refer to |
| `<p>:minute:<n>`, `<p>:minutes` | set, sorted set | which jobs have fires due in a minute |
| `<p>:others` | set | the places of `<p>:fire:` rows of fires that are queued, or to be run again |
| `<p>:manual` | hash | when a fire by hand was due |
| `<p>:stretches` | sorted set | rows that stand for several fires, by their last due time |
| `<p>:noted` | sorted set | jobs by their latest event |
| `<p>:retold` | set | jobs with more than one event |
| `<p>:extremes` | sorted set | by how much a fire ended before it was due, because the clock stepped back |
| `<p>:entries`, `<p>:entry_keys` | hash, sorted set | notification rules, outbox, what is owed; their keys in order |
| `<p>:meta` | hash | schema, the server's run |
| `<p>:hint`, `<p>:lead`, `<p>:alive:<replica>` | channels | something to do; the leader is there; a live session |

A *planned* fire is only a member of `<p>:live:<id>`: everything else about it follows from its job and its moment.
The *moment* is the due time as text, or `!name` for a fire by hand; `<id>:<moment>` is its *place*.
"""

from __future__ import annotations

from datetime import datetime

from fencepost.errors import ConfigurationError
from fencepost.model.triggers import from_iso
from fencepost.store.formats import Format, format_of

SCHEMA = 2
IN_WORDS = {
    1: "mark the namespace as written by this version: job records have fields that 0.1.0 does not know, and its "
    "replicas are refused when they connect anew"
}
"""By the schema that is found: what brings it to the next."""

# fmt: off
KINDS = (
    "leader", "job", "fire", "live", "done", "jobs", "hot", "events", "look", "first", "priorities",
    "deciding", "plan", "replica", "replicas", "held", "engines", "knows", "knowers", "unknown",
    "targets", "minute", "minutes", "others", "manual", "stretches", "noted", "retold", "extremes",
    "entries", "entry_keys", "meta",
)
# fmt: on
"""With what the names of keys begin after the prefix."""
MOVED = 1_000_000
"""The format of a namespace that has moved to a cluster: every version refuses it as newer than its own."""
ARRIVING = 1_000_001
"""The same, of one whose keys are still being copied to the cluster."""

MOMENT_LENGTH = len("2026-11-15T12:00:00.000000Z")


class Keys:
    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.leader = f"{prefix}:leader"
        self.jobs = f"{prefix}:jobs"
        self.engines = f"{prefix}:engines"
        self.deciding = f"{prefix}:deciding"
        self.plan = f"{prefix}:plan"
        self.replicas = f"{prefix}:replicas"
        self.targets = f"{prefix}:targets"
        self.knowers = f"{prefix}:knowers"
        self.unknown = f"{prefix}:unknown"
        self.minutes = f"{prefix}:minutes"
        self.others = f"{prefix}:others"
        self.manual = f"{prefix}:manual"
        self.stretches = f"{prefix}:stretches"
        self.noted = f"{prefix}:noted"
        self.retold = f"{prefix}:retold"
        self.extremes = f"{prefix}:extremes"
        self.priorities = f"{prefix}:priorities"
        self.entries = f"{prefix}:entries"
        self.entry_keys = f"{prefix}:entry_keys"
        self.meta = f"{prefix}:meta"
        self.hint = f"{prefix}:hint"
        self.lead = f"{prefix}:lead"

    def run(self, place: str) -> str:
        return f"{self.prefix}:job:{place}"

    def fire(self, place: str) -> str:
        return f"{self.prefix}:fire:{place}"

    def live(self, job_id: str) -> str:
        return f"{self.prefix}:live:{job_id}"

    def done(self, job_id: str) -> str:
        return f"{self.prefix}:done:{job_id}"

    def hot(self, job_id: str) -> str:
        return f"{self.prefix}:hot:{job_id}"

    def events(self, job_id: str) -> str:
        return f"{self.prefix}:events:{job_id}"

    def decisions(self, group: str) -> str:
        """Of a group of jobs: `<kind>:<target>`."""
        return f"{self.prefix}:look:{group}"

    def replica(self, id: str) -> str:
        return f"{self.prefix}:replica:{id}"

    def held(self, replica: str) -> str:
        return f"{self.prefix}:held:{replica}"

    def knows(self, replica: str) -> str:
        return f"{self.prefix}:knows:{replica}"

    def minute(self, number: int) -> str:
        return f"{self.prefix}:minute:{number}"

    def alive(self, replica: str) -> str:
        return f"{self.prefix}:alive:{replica}"


def split(key: str) -> tuple[str, str]:
    """A fire's key as job id and moment. What is no such key belongs to a job without a name."""
    job_id, by_hand, name = key.partition("!")
    if by_hand:
        return job_id, f"!{name}"
    job_id, _, moment = key.rpartition("@")
    return job_id, moment


def join(job_id: str, moment: str) -> str:
    return f"{job_id}{moment}" if moment.startswith("!") else f"{job_id}@{moment}"


def split_place(place: str) -> tuple[str, str]:
    job_id, by_hand, name = place.partition(":!")
    return (job_id, f"!{name}") if by_hand else (place[: -MOMENT_LENGTH - 1], place[-MOMENT_LENGTH:])


def due_of(moment: str) -> datetime | None:
    """None: it is the moment of a fire by hand, or none at all."""
    if len(moment) != MOMENT_LENGTH:
        return None
    try:
        return from_iso(moment)
    except ConfigurationError:
        return None


def format_found(schema: int, server: str) -> Format:
    """The format of a namespace; an error if the namespace has moved away, or is not here as a whole yet."""
    if schema == MOVED:
        raise ConfigurationError(
            f"{server}: this namespace has moved to a cluster; use the cluster's URL (redis+cluster://…)"
        )
    if schema == ARRIVING:
        raise ConfigurationError(
            f"{server}: this namespace is being moved here; wait until `fencepost store move` has ended, or call it "
            "again if it was cut off"
        )
    return format_of(schema, SCHEMA, IN_WORDS)
