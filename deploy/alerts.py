"""The alert rules. Every name of a metric comes from its definition: one that is renamed cannot stay behind here."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.insight.metrics import definitions as m

MISSED = f'{m.RUNS.exported}{{outcome="missed"}}'


@dataclass(frozen=True)
class Alert:
    name: str
    expr: str
    wait: str
    """How long it must hold."""
    severity: str
    summary: str
    description: str

    @property
    def page(self) -> str:
        """Its runbook, in docs/runbooks/: FencepostFireMissed is in fire-missed.md."""
        words = "".join(f"-{each.lower()}" if each.isupper() else each for each in self.name)
        return f"{words.removeprefix('-fencepost-')}.md"


ALERTS = (
    Alert(
        "FencepostFireMissed",
        # A series that is new has no increase: it began with its first miss.
        f"sum by (job, job_name) ((increase({MISSED}[10m]) > 0) or ({MISSED} unless {MISSED} offset 10m)) > 0",
        "0m",
        "warning",
        "{{ $labels.job_name }}: a fire was missed",
        "Fires of {{ $labels.job_name }} that were due in the last 10 minutes and did not run: "
        "{{ $value | humanize }}.",
    ),
    Alert(
        "FencepostNextRunOverdue",
        # The least of what the replicas say: one that lags behind raises no alarm.
        f"min by (job, job_name) (time() - {m.NEXT_RUN.exported}) > 120",
        "1m",
        "critical",
        "{{ $labels.job_name }} is overdue",
        "A fire of {{ $labels.job_name }} has been due for {{ $value | humanizeDuration }}, and no replica has decided "
        "it.",
    ),
    Alert(
        "FencepostRunsLate",
        f"histogram_quantile(0.99, sum by (job, le) (rate({m.DELAY.exported}_bucket[15m]))) > 5",
        "5m",
        "warning",
        "runs start late",
        "1 run in 100 starts more than {{ $value | humanizeDuration }} after it was due.",
    ),
    Alert(
        "FencepostFailingInARow",
        f"max by (job, job_name) ({m.FAILURES.exported}) >= 3",
        "0m",
        "warning",
        "{{ $labels.job_name }} keeps failing",
        "The last {{ $value | humanize }} runs of {{ $labels.job_name }} failed or were lost.",
    ),
    Alert(
        "FencepostNoLeader",
        f"sum by (job) ({m.LEADER.exported}) == 0 or absent({m.LEADER.exported})",
        "2m",
        "critical",
        "no replica leads",
        "No replica has led for 2 minutes, or none is scraped. What is planned runs; nothing new is planned, and the "
        "runs of dead replicas are not settled.",
    ),
    Alert(
        "FencepostStoreLost",
        f"min by (job, instance) ({m.STORE_UP.exported}) == 0",
        "1m",
        "critical",
        "{{ $labels.instance }} cannot reach the store",
        "The store has not answered {{ $labels.instance }} for a minute. No run starts there until it does.",
    ),
    Alert(
        "FencepostReplicaDegraded",
        f"max by (job, instance, loop) ({m.DEGRADED.exported}) == 1",
        "2m",
        "warning",
        "{{ $labels.instance }}: the {{ $labels.loop }} keeps failing",
        "The {{ $labels.loop }} of {{ $labels.instance }} has failed three times in a row or more, for 2 minutes. "
        "/readyz of that replica says why.",
    ),
    Alert(
        "FencepostOutboxStuck",
        f"max by (job, channel) ({m.OUTBOX_OLDEST.exported}) > 300",
        "5m",
        "warning",
        "notices for {{ $labels.channel }} are not delivered",
        "The oldest notice for {{ $labels.channel }} has waited for {{ $value | humanizeDuration }}: the channel "
        "fails, or the leader does not have it.",
    ),
)
