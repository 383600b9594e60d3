"""`after(extract)`, as it is written in code: jobs by their function or by their id."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fencepost.errors import ConfigurationError, UsageError
from fencepost.model import Job
from fencepost.model.triggers.following import CIRCLE, After, On, circle_of, parents_of


@dataclass(frozen=True, slots=True)
class Parents:
    """What `after(…)` was given; functions are known to the scheduler that they were declared to."""

    given: tuple[Any, ...]
    on: On

    def resolved(self, id_of: Callable[[Any], str]) -> After:
        try:
            return After(tuple(map(id_of, self.given)), self.on)
        except UsageError as error:
            raise ConfigurationError(f"after(…): {error}") from None


def after(*parents: Any, on: On = "succeeded") -> Parents:
    """Run after other jobs, with the due time that they had: `@scheduler.job(after(extract))`. A parent is a function
    that was declared to the same scheduler, or the id of any job. Of several, the last to end lets it go. `on="ended"`:
    also if a parent failed, was cancelled or lost; not if it never ran."""
    if not parents:
        raise ConfigurationError("after() names no job; write after(extract) or after(extract, transform)")
    return Parents(parents, on)


class CircleOfJobs(ConfigurationError):
    def __init__(self, jobs: Sequence[str]) -> None:
        super().__init__(CIRCLE.format(" → ".join(jobs)))
        self.jobs = jobs


def refuse_circle(job: Job, others: Mapping[str, Job]) -> None:
    """Of what is declared here. The store refuses circles through jobs of other applications."""

    def parents(id: str) -> tuple[str, ...]:
        return parents_of(others[id].trigger) if id in others else ()

    if circle := circle_of(job.id, job.trigger, parents):
        raise CircleOfJobs(circle[::-1])
