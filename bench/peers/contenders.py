"""Who is measured: which app, on which store, with how many replicas."""

from __future__ import annotations

from dataclasses import dataclass

from bench.peers.environment import OURS, version

import fencepost


@dataclass(frozen=True)
class Contender:
    name: str
    app: str
    """The file in `apps/`."""
    store: str
    environment: str = "main"
    package: str = ""
    """Whose version is shown, if it is not called like the app."""
    title: str = ""
    coordinated: bool = True
    """Whether several replicas are meant to share the work. If not, the rates are measured with one."""
    first_rate: int = 200
    """Where the search for the highest rate begins; near the answer saves time."""
    drifts: bool = False
    """Counts each interval from the last run: there is no due time to be late for, see `figures.paced`."""
    period: int = 5
    register_s: float = 0.002
    """Seconds to register one job, for those that do it before the first fire: a generous guess."""
    replicas: int = 3
    warm_s: float = 1.0
    """Seconds from the first fires to those that are measured."""
    spread: bool = False
    only_rates: bool = False
    """Measured at 20 and 100 fires a second alone: another row of the same contender is measured in full."""

    @property
    def version(self) -> str:
        if self.environment == OURS:
            return fencepost.__version__
        return version(self.environment, self.package or self.app)

    @property
    def ours(self) -> bool:
        return self.app == "fencepost"

    @property
    def label(self) -> str:
        return f"{self.title or self.app}, {STORES[self.store]}"


ACQUAINTED_S = 25.0
"""After two heartbeats replicas of Fencepost know each other, and one asks for each fire. Fires that are due together
show no difference: as many replicas ask as there are fires."""

STORES = {"postgres": "PostgreSQL", "valkey": "Valkey", "sqlite": "SQLite", "memory": "memory"}

CONTENDERS = (
    Contender("fencepost-postgres", "fencepost", "postgres", OURS, title="Fencepost", first_rate=4800),
    Contender("fencepost-valkey", "fencepost", "valkey", OURS, title="Fencepost", first_rate=4800),
    Contender("pyncette-postgres", "pyncette", "postgres"),
    Contender("pyncette-valkey", "pyncette", "valkey", first_rate=400),
    Contender("procrastinate", "procrastinate", "postgres"),
    Contender("pgqueuer", "pgqueuer", "postgres"),
    Contender("dbos", "dbos", "postgres", title="DBOS", first_rate=75, register_s=0.02),
    Contender(
        "apscheduler4",
        "apscheduler4",
        "postgres",
        "apscheduler4",
        package="apscheduler",
        title="APScheduler 4",
        first_rate=100,
        register_s=0.01,
    ),
    Contender("redbeat", "redbeat", "valkey", package="celery-redbeat", drifts=True, first_rate=150),
    Contender(
        "apscheduler3",
        "apscheduler3",
        "postgres",
        package="apscheduler",
        title="APScheduler 3",
        coordinated=False,
        first_rate=600,
        register_s=0.004,
    ),
    Contender("taskiq", "taskiq", "valkey", coordinated=False, first_rate=800, period=1),
    # Further rows at 20 and 100 fires a second.
    Contender(
        "fencepost-postgres-spread",
        "fencepost",
        "postgres",
        OURS,
        title="Fencepost, fires spread over the second",
        warm_s=ACQUAINTED_S,
        spread=True,
        only_rates=True,
    ),
    Contender(
        "fencepost-valkey-spread",
        "fencepost",
        "valkey",
        OURS,
        title="Fencepost, fires spread over the second",
        warm_s=ACQUAINTED_S,
        spread=True,
        only_rates=True,
    ),
    Contender(
        "pyncette-postgres-1",
        "pyncette",
        "postgres",
        title="pyncette, one replica",
        replicas=1,
        only_rates=True,
    ),
    Contender(
        "pyncette-valkey-1", "pyncette", "valkey", title="pyncette, one replica", replicas=1, only_rates=True
    ),
    Contender("fencepost-sqlite", "fencepost", "sqlite", OURS, title="Fencepost", only_rates=True),
    Contender("pyncette-sqlite", "pyncette", "sqlite", only_rates=True),
)
