"""The scripts: Lua that runs as one atomic step on the server, sent once and then called by its digest."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from fencepost.store.redis.values import HOT, LEASE, REPLICA


@dataclass(frozen=True)
class Script:
    name: str
    text: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha", hashlib.sha1(self.text.encode()).hexdigest())


def _script(name: str, *pieces: str) -> Script:
    parts = [_FIELDS, *(_lua(piece) for piece in pieces), _lua(name)]
    return Script(name, "\n".join(parts))


@cache
def _lua(name: str) -> str:
    return files(__package__).joinpath("lua", f"{name}.lua").read_text()


def _table(name: str, fields: tuple[str, ...]) -> str:
    return f"local {name} = {{{', '.join(repr(field) for field in fields)}}}"


_FIELDS = "\n".join([_table("HOT", HOT), _table("LEASE", LEASE), _table("REPLICA", REPLICA)])

BEGIN = _script("begin", "time", "looks", "live")
JOBS = _script("jobs", "time", "live")
AHEAD = _script("ahead")
DONE = _script("done")
HELD = _script("held")
DUE = _script("due", "time", "looks")
COMMIT = _script("commit", "time", "looks")
FIND = _script("find", "time", "fires")
FIND_OF_JOB = _script("find_of_job", "fires")
ACTIVE = _script("active")
PRUNE = _script("prune", "time", "fires")

HEARTBEAT = _script("beat", "time")
SESSION = _script("session")
SWEEP = _script("sweep", "time")
RECORDS = _script("records")
PLANS = _script("plans", "time")
PLAN = _script("plan", "time", "looks")
CLAIM = _script("claim", "time", "looks", "tokens")
SETTLE = _script("settle", "time", "looks")
INIT = _script("init", "time")

MOVE = _script("move")
EXPECT = _script("expect")
ARRIVE = _script("arrive")
