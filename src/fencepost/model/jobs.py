"""Jobs: when to run which task, with which policies. `job_records.py` has a job as the store keeps it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Literal

from fencepost.errors import ConfigurationError
from fencepost.model.fires import FireRecord, Reason
from fencepost.model.job_fields import FIELDS, fields_from_json, fields_to_json
from fencepost.model.limits import Limit
from fencepost.model.retry import Retry
from fencepost.model.triggers import Trigger, trigger_from_json
from fencepost.model.values import Json, checked_id, clean_json

MISFIRES = ("latest", "all", "skip")
CATCH_UP_LIMIT = 100
"""How many late fires `misfire="all"` runs at the most, and how many fires per job are planned ahead."""


_UNCOUNTED = ("skip", "replace")


@dataclass(frozen=True, slots=True)
class Overlap:
    """What happens to a fire that falls due while the job is still active.

    `skip`: it is skipped. `queue(n)`: up to n wait their turn. `allow(n)`: up to n run at once. `replace`: the run
    before it is cancelled, and it starts when that has ended.
    """

    kind: Literal["skip", "queue", "allow", "replace"] = "skip"
    limit: int = 1

    @classmethod
    def parse(cls, text: str | Overlap) -> Overlap:
        if isinstance(text, Overlap):
            return text
        found = re.fullmatch(r"(skip|queue|allow|replace)(?:\((\d{1,4})\))?", str(text).strip())
        if not found or (bool(found[2]) if found[1] in _UNCOUNTED else found[1] == "allow" and not found[2]):
            raise ConfigurationError(
                f'overlap={text!r} is not known; use "skip", "queue", "queue(5)", "allow(3)" or "replace"'
            )
        limit = int(found[2] or 1)
        if limit < 1:
            raise ConfigurationError(f"overlap={text!r} admits nothing; the number must be at least 1")
        return cls(found[1], limit)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return self.kind if self.kind in _UNCOUNTED else f"{self.kind}({self.limit})"

    @property
    def at_once(self) -> int:
        return self.limit if self.kind == "allow" else 1


LEADER, ANY = "leader", "any"
DEFAULT_POOL = "default"
"""Where jobs run that name no pool, and which replicas are in that name none."""


def checked_pool(name: str) -> str:
    if name in (LEADER, ANY):
        raise ConfigurationError(f"a pool cannot be called {name!r}: execute_on={name!r} has its own meaning")
    return checked_id(name, "pool")  # as settings.py has it


def lane_of(target: str, pool: str) -> str:
    """What replicas register, and jobs ask for: a task in a pool."""
    return target if pool == DEFAULT_POOL else f"{target}@{pool}"


def pools_of(lanes: Iterable[str]) -> tuple[str, ...]:
    """The pools of a replica that has registered these. Those of engines (`@celery`) are none."""
    found = {lane.partition("@")[2] or DEFAULT_POOL for lane in lanes if not lane.startswith("@")}
    return tuple(sorted(found))


def tasks_of(lanes: Iterable[str]) -> tuple[str, ...]:
    """The tasks known to a replica that has registered these."""
    return tuple(sorted({lane.partition("@")[0] for lane in lanes} - {""}))


@dataclass(frozen=True)
class Job:
    """When to run which task, with which arguments and policies. A JSON value in the store."""

    id: str
    target: str
    trigger: Trigger | None = None
    args: Mapping[str, Json] = field(default_factory=dict)
    overlap: Overlap = Overlap()
    misfire: str = "latest"
    misfire_after: timedelta = timedelta(seconds=30)
    retry: Retry | None = None
    timeout: timedelta | None = None
    after_crash: str = "record"
    crash_attempts: int = 3
    execute_on: str = ANY
    """On any replica of the default pool, on the leader, or in the pool of this name."""
    engine: str | None = None
    """Which engine carries out its runs; None: the replica that claims them."""
    engine_options: Mapping[str, Json] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    owner: str = ""
    description: str = ""
    priority: int = 0
    """Of what is due, a free slot takes the fires of the jobs with the highest one first."""
    jitter: timedelta | None = None
    """Each start is put off by chance, by less than this."""
    limits: tuple[Limit, ...] = ()
    """Shared with other jobs."""

    def __post_init__(self) -> None:
        checked_id(self.id, "job id")
        _one_of("misfire", self.misfire, MISFIRES)
        _one_of("after_crash", self.after_crash, ("record", "rerun"))
        if self.execute_on not in (ANY, LEADER):
            checked_pool(self.execute_on)
            if self.engine is not None:
                raise ConfigurationError(
                    f"job {self.id}: it runs on the engine {self.engine}; leave out execute_on={self.execute_on!r}"
                )
        if not timedelta(0) < self.misfire_after <= timedelta(days=366):
            raise ConfigurationError(f"job {self.id}: misfire_after must be above 0 and at most a year")
        if self.timeout is not None and self.timeout <= timedelta(0):
            raise ConfigurationError(f"job {self.id}: timeout must be above 0; leave it out for no limit")
        if type(self.crash_attempts) is not int or not 1 <= self.crash_attempts <= 100:
            raise ConfigurationError(f"job {self.id}: crash_attempts must be a number between 1 and 100")
        object.__setattr__(self, "args", clean_json(self.args, f"arguments of job {self.id}"))
        for name, optional in FIELDS.items():
            if (value := getattr(self, name)) is not optional.default:
                object.__setattr__(self, name, optional.read(value))

    @property
    def leader_only(self) -> bool:
        return self.execute_on == LEADER

    @property
    def pool(self) -> str:
        return DEFAULT_POOL if self.execute_on in (ANY, LEADER) else self.execute_on

    @cached_property
    def lane(self) -> str:
        """What a replica must have registered to claim its fires: the task, in its pool; or the engine."""
        return lane_of(self.target, self.pool) if self.engine is None else f"@{self.engine}"

    @property
    def unclaimable(self) -> str:
        """Why its fires are missed while no live replica has registered its lane."""
        if self.engine is not None:
            return f"no replica with engine {self.engine}"
        return Reason.UNKNOWN_TASK if self.pool == DEFAULT_POOL else f"no replica in pool {self.pool}"

    @property
    def decided_within(self) -> timedelta:
        """After its due time a fire is decided within this, unless something is wrong."""
        return self.misfire_after + (self.jitter or timedelta(0))

    def jitter_of(self, fire: FireRecord) -> timedelta:
        """By how much the start of a scheduled fire is put off. Drawn from its key: every replica draws the same, and
        the next fire another."""
        if self.jitter is None or not fire.scheduled:
            return timedelta(0)
        drawn = int.from_bytes(hashlib.sha256(f"{fire.key}/jitter".encode()).digest()[:8])
        return timedelta(microseconds=drawn % (self.jitter // timedelta(microseconds=1)))

    @cached_property
    def text(self) -> str:
        """As the stores keep it: equal jobs have equal texts."""
        return json.dumps(job_to_json(self), sort_keys=True, separators=(",", ":"))

    @cached_property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigurationError(f"{name}={value!r} is not known; use one of {', '.join(known)}")


def job_to_json(job: Job) -> dict[str, Json]:
    return {
        "id": job.id,
        "target": job.target,
        "trigger": job.trigger.to_json() if job.trigger else None,
        "args": dict(job.args),
        "overlap": str(job.overlap),
        "misfire": job.misfire,
        "misfire_after": job.misfire_after.total_seconds(),
        "retry": job.retry.to_json() if job.retry else None,
        "timeout": job.timeout.total_seconds() if job.timeout else None,
        "after_crash": job.after_crash,
        "crash_attempts": job.crash_attempts,
        "execute_on": job.execute_on,
        # Absent where there is none, so that the fingerprints of all other jobs stay what they were.
        **({} if job.engine is None else {"engine": job.engine, "engine_options": dict(job.engine_options)}),
        **fields_to_json(job),
    }


def job_from_json(
    value: Mapping[str, Json], read_trigger: Callable[[Mapping[str, Json]], Trigger] = trigger_from_json
) -> Job:
    return Job(
        id=value["id"],
        target=value["target"],
        trigger=read_trigger(value["trigger"]) if value["trigger"] else None,
        args=value["args"],
        overlap=Overlap.parse(value["overlap"]),
        misfire=value["misfire"],
        misfire_after=timedelta(seconds=value["misfire_after"]),
        retry=Retry.from_json(value["retry"]) if value["retry"] else None,
        timeout=timedelta(seconds=value["timeout"]) if value["timeout"] else None,
        after_crash=value["after_crash"],
        crash_attempts=value["crash_attempts"],
        execute_on=value["execute_on"],
        engine=value.get("engine"),
        engine_options=value.get("engine_options", {}),
        **fields_from_json(value),
    )
