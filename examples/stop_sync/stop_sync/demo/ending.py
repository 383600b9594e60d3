"""Was it right? The audit, and what the plot did to the runs, compared with what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from fencepost.audit import Report, audit
from fencepost.cli.audit import tell as tell_audit
from fencepost.cli.output import say
from fencepost.cli.progress import phases
from fencepost.demo.processes import Replicas
from fencepost.model import FireRecord, State
from fencepost.store.base import FireQuery, Store
from stop_sync.demo.plot import CutOff

HOW = {"kill -9": "killed with kill -9", "SIGTERM": "stopped with SIGTERM"}


@dataclass
class Account:
    report: Report
    takeovers: list[float]
    """Seconds from each kill -9 to the next leader."""
    told: list[str] = field(default_factory=list)
    """Of each run that was cut off."""
    problems: list[str] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        return self.report.clean and not self.problems


async def reckon(
    store: Store, processes: Replicas, cut_off: Sequence[CutOff], takeovers: list[float], until: datetime
) -> Account:
    account = Account(await audit(store, until=until), takeovers)
    for each in cut_off:
        [fire] = await store.find_fires(FireQuery(key=each.key, limit=1))
        account.problems += problems_of(each, fire)
        account.told.append(
            f"{fire.key}: {HOW[each.how]} after {len(each.behind)} phases, went on there with token {fire.token} "
            f"after {each.token}, and {fire.state.value}"
        )
    account.problems += [f"{each.name} ended with code {each.code}" for each in processes.failed]
    return account


def problems_of(cut_off: CutOff, fire: FireRecord) -> list[str]:
    """What was behind the run is behind it still, with the time it took then: nobody did it again."""
    found = []
    if fire.state is not State.SUCCEEDED:
        found.append(f"{fire.key} was cut off by {cut_off.how} and {fire.state.value}")
    if fire.token <= cut_off.token:
        found.append(f"{fire.key} went on with token {fire.token}, not higher than {cut_off.token}")
    if phases(fire)[: len(cut_off.behind)] != cut_off.behind:
        found.append(f"{fire.key} has repeated a phase that was behind it")
    return found


def tell(account: Account, store: str) -> None:
    say("")
    for line in account.told:
        say(line)
    for seconds in account.takeovers:
        say(f"takeover: {seconds:.2f} s from kill -9 to the next leader")
    say("\nfencepost audit")
    tell_audit(account.report, store)
    for problem in account.problems:
        say(f"PROBLEM: {problem}")
