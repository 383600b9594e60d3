"""What a run knows of itself. It travels in the checkpoint, so that a resumed run knows it, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from fencepost.model import Json

FORMAT = 1
MOST_WARNINGS = 30
"""Of a run."""
WARNING_LIMIT = 200


@dataclass
class Passed:
    """One phase that is behind us: done, reused, skipped or failed."""

    name: str
    outcome: str
    seconds: float = 0.0
    started_at: str | None = None
    warnings: list[str] = field(default_factory=list)
    attempt: int = 1
    error: str | None = None


@dataclass
class PipelineMemory:
    run_type: str | None = None
    rewritten: list[str] = field(default_factory=list)
    reused: list[str] = field(default_factory=list)
    """The tables that this run rewrites and leaves, shown while it waits to be resumed."""
    results: dict[str, Json] = field(default_factory=dict)
    """By phase: what it returned."""
    passed: list[Passed] = field(default_factory=list)
    inside: str | None = None
    """The phase that has saved something on its way, and what."""
    saved: Json = None
    processed: dict[str, dict[str, Json]] = field(default_factory=dict)
    """By source: the validators of the bytes that this run has processed."""
    values: dict[str, Json] = field(default_factory=dict)
    """What phases asked to keep."""

    @classmethod
    def of(cls, checkpoint: Json) -> PipelineMemory:
        """Of an earlier attempt. A checkpoint of another kind is not ours: the run starts from the beginning."""
        if not isinstance(checkpoint, Mapping) or checkpoint.get("pipeline") != FORMAT:
            return cls()
        known = {each.name for each in fields(cls)}
        values: dict[str, Any] = {name: value for name, value in checkpoint.items() if name in known}
        values["passed"] = [Passed(**passed) for passed in values.get("passed", [])]
        return cls(**values)

    def to_json(self) -> dict[str, Json]:
        return {"pipeline": FORMAT, **asdict(self)}

    def outcome_of(self, name: str) -> str | None:
        """Of a phase that is behind us."""
        return next((passed.outcome for passed in self.passed if passed.name == name), None)

    def keep_only(self, names: list[str]) -> None:
        """Only these phases are behind us: what was done after them is done again."""
        self.passed = [passed for passed in self.passed if passed.name in names]
        self.results = {name: result for name, result in self.results.items() if name in names}

    def warned(self) -> int:
        return sum(len(passed.warnings) for passed in self.passed)
