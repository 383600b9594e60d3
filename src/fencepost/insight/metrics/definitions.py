"""What is measured. Exporters, alert rules and the dashboard of Grafana are all made from these.

No ids are labels, except the names of jobs, and of those a bounded number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PREFIX = "fencepost_"
JOB = "job_name"
OTHERS = "(others)"
"""The name that jobs share which have none of their own in the metrics."""

DURATIONS = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14400)
DELAYS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 120, 600)


@dataclass(frozen=True)
class Metric:
    name: str
    """Without the prefix; of a counter, without `_total`."""
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    from_store: bool = False
    """Read from the store, and the same whichever process is asked. Others are of one process."""
    tells_of_jobs: bool = True
    """False: the same whatever jobs there are. Of all others a token that is bound to some jobs sees only theirs."""

    @property
    def exported(self) -> str:
        """As Prometheus has it; of a histogram, what its series begin with."""
        return f"{PREFIX}{self.name}" + ("_total" if self.kind == "counter" else "")

    @property
    def series(self) -> frozenset[str]:
        """The names of its series in Prometheus."""
        if self.kind != "histogram":
            return frozenset({self.exported})
        return frozenset(f"{self.exported}_{part}" for part in ("bucket", "count", "sum"))


# Of one process: counted as it happens.
RUNS = Metric("runs", "counter", "Fires that ended, by outcome.", (JOB, "outcome"))
DURATION = Metric("run_duration_seconds", "histogram", "From start to end.", (JOB,), DURATIONS)
DELAY = Metric(
    "run_start_delay_seconds", "histogram", "From due, or from its turn, to started.", (JOB,), DELAYS
)
QUEUED = Metric(
    "run_queued_seconds", "histogram", "From due until the run before it ended.", (JOB,), DURATIONS
)
RETRIES = Metric("retries", "counter", "Attempts that will be repeated.", (JOB,))
MISFIRES = Metric("misfires", "counter", "Fires missed, by why.", ("policy",))
SKIPS = Metric("skips", "counter", "Fires skipped, by why.", ("reason",))
CLAIMS = Metric("claims", "counter", "Fires claimed, given back, or refused.", ("result",))
LEASE_LOST = Metric("lease_lost", "counter", "Leadership or presence lost.", tells_of_jobs=False)
REJECTIONS = Metric("fencing_rejections", "counter", "Runs whose token was gone.")
STORE_SECONDS = Metric(
    "store_operation_duration_seconds",
    "histogram",
    "By operation.",
    ("operation",),
    DELAYS,
    tells_of_jobs=False,
)
STORE_ERRORS = Metric(
    "store_errors", "counter", "Store calls that failed.", ("operation",), tells_of_jobs=False
)

NOTIFICATIONS = Metric(
    "notifications",
    "counter",
    "Notices of this process by channel: delivered, failed attempts, set aside.",
    ("channel", "result"),
    tells_of_jobs=False,
)

# Of one process: as it is at the moment.
BUILD = Metric("build_info", "gauge", "The version, as a label.", ("version",), tells_of_jobs=False)
IN_PROGRESS = Metric("runs_in_progress", "gauge", "Runs of this process.")
LEADER = Metric("leader", "gauge", "1 if this process leads.", tells_of_jobs=False)
READY = Metric("ready", "gauge", "1 if this process is ready.", tells_of_jobs=False)
STORE_UP = Metric("store_up", "gauge", "1 if the store answers this process.", tells_of_jobs=False)
DEGRADED = Metric(
    "loop_degraded", "gauge", "1 while this loop keeps failing.", ("loop",), tells_of_jobs=False
)

# Read from the store.
SKEW = Metric(
    "clock_skew_seconds",
    "gauge",
    "This machine's clock less the store's.",
    from_store=True,
    tells_of_jobs=False,
)
JOBS = Metric("jobs", "gauge", "Jobs by state.", ("state",), from_store=True)
REPLICAS = Metric("replicas", "gauge", "Replicas by state.", ("state",), from_store=True, tells_of_jobs=False)
UNREADABLE = Metric(
    "job_unreadable", "gauge", "1 while something of the job cannot be read.", (JOB,), from_store=True
)
BLOCKING = Metric(
    "blocking_active", "gauge", "1 while this pipeline blocks the application.", (JOB,), from_store=True
)
LAST_SUCCESS = Metric(
    "job_last_success_timestamp_seconds",
    "gauge",
    "End of the last run that succeeded.",
    (JOB,),
    from_store=True,
)
NEXT_RUN = Metric(
    "job_next_run_timestamp_seconds",
    "gauge",
    "The next scheduled fire. In the past while it is overdue: no replica has decided it.",
    (JOB,),
    from_store=True,
)
FAILURES = Metric(
    "job_failures_in_a_row",
    "gauge",
    "Runs that failed or were lost since the last success.",
    (JOB,),
    from_store=True,
)
DATA_UPDATED = Metric(
    "data_updated_timestamp_seconds", "gauge", "When this pipeline last succeeded.", (JOB,), from_store=True
)

OUTBOX_WAITING = Metric(
    "outbox_waiting", "gauge", "Notices that wait to be delivered.", ("channel",), from_store=True
)
OUTBOX_ASIDE = Metric(
    "outbox_set_aside", "gauge", "Notices that could not be delivered.", ("channel",), from_store=True
)
OUTBOX_OLDEST = Metric(
    "outbox_oldest_seconds",
    "gauge",
    "Age of the oldest notice that its channel fails to deliver, or that the leader has no channel for; else 0.",
    ("channel",),
    from_store=True,
)

METRICS = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
