"""The coming fires of a trigger, with what its calendar leaves out between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby, islice

from fencepost.insight.views.shapes import Shape
from fencepost.model.triggers import LeftOut, Trigger, iso

MOST_LEFT_OUT = 10_000
"""The most left-out moments that are read for one preview."""


@dataclass(frozen=True)
class PreviewStep:
    due_at: datetime
    left_out: tuple[LeftOut, ...] = ()
    """Since the fire before."""

    def grouped(self) -> Iterator[tuple[LeftOut, int]]:
        """The first of those in a row with the same reason, and how many they are."""
        for _, each in groupby(self.left_out, key=lambda left: (left.why, left.moved_to)):
            first, *others = each
            yield first, 1 + len(others)


def coming(trigger: Trigger, after: datetime, count: int) -> list[PreviewStep]:
    fires = list(islice(trigger.after(after), count))
    if not fires:
        return []
    left = list(islice(trigger.left_out(after, fires[-1]), MOST_LEFT_OUT))
    steps, number = [], 0
    for fire in fires:
        begin = number
        while number < len(left) and left[number].at <= fire:
            number += 1
        steps.append(PreviewStep(fire, tuple(left[begin:number])))
    return steps


def preview_shape(step: PreviewStep, jitter: timedelta | None = None) -> Shape:
    """`jitter`: of the job. It may start until `starts_by`."""
    shape: Shape = {"due_at": iso(step.due_at)}
    if jitter is not None:
        shape["starts_by"] = iso(step.due_at + jitter)
    if step.left_out:
        shape["left_out"] = [left_out_shape(left) for left in step.left_out]
    return shape


def left_out_shape(left: LeftOut) -> Shape:
    return {"at": iso(left.at), "why": left.why, "moved_to": iso(left.moved_to) if left.moved_to else None}
