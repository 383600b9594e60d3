"""Which type a run is of, and what it rewrites: decided by rules, from top to bottom."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fencepost.errors import ConfigurationError

if TYPE_CHECKING:
    from fencepost.pipeline.pipeline import Phase
    from fencepost.pipeline.run import PipelineRun

Tables = Sequence[str] | Mapping[str, Sequence[str]]
MOST_TABLES = 200


@dataclass(frozen=True)
class Rule:
    """A run is of this type if everything it names applies; what it leaves out does not matter."""

    run_type: str
    modes: tuple[str, ...] = ()
    forced: bool | None = None
    changed: bool | None = None
    sources: tuple[str, ...] = ()
    """Those that `changed` is about; none named: all."""
    exist: tuple[Path, ...] = ()
    when: Callable[..., Any] | None = None

    def may_apply(self, run: PipelineRun) -> bool:
        """All but `when`, which the caller asks: it may take its time."""
        return (
            (not self.modes or run.mode in self.modes)
            and (self.forced is None or self.forced == run.force)
            and (self.changed is None or self.changed == run.has_changed(self.sources))
            and all(path.exists() for path in self.exist)
        )


def rule(
    run_type: str,
    *,
    modes: Sequence[str] = (),
    forced: bool | None = None,
    changed: bool | None = None,
    sources: Sequence[str] = (),
    exist: Sequence[str | os.PathLike[str]] = (),
    when: Callable[..., Any] | None = None,
) -> Rule:
    """`rule("complete", changed=True)`: the first rule that applies says the type.

    `changed`: whether any of the `sources` (all) has changed, could not be probed or lacks its artefacts; nothing has
    changed in a mode that probes none. `exist`: files that must be there. `when`: a function of the run.
    """
    if sources and changed is None:
        raise ConfigurationError(f"rule for {run_type}: sources= says which must have changed; add changed=")
    return Rule(run_type, tuple(modes), forced, changed, tuple(sources), tuple(map(Path, exist)), when)


def tables_by_run_type(given: Tables, what: str) -> Mapping[str, tuple[str, ...]] | tuple[str, ...]:
    """As it is kept."""
    if isinstance(given, Mapping):
        return {run_type: _tables(tables, what) for run_type, tables in given.items()}
    return _tables(given, what)


def _tables(given: Sequence[str], what: str) -> tuple[str, ...]:
    if isinstance(given, str) or not all(given):
        raise ConfigurationError(f"{what}: name tables in a list")
    if len(given) > MOST_TABLES:
        raise ConfigurationError(f"{what} names more than {MOST_TABLES} tables")
    return tuple(given)


def refresh_scope(phases: Iterable[Phase], mode: str, run_type: str) -> tuple[list[str], list[str]]:
    """The tables that such a run rewrites, and those it reuses: all others that the pipeline names."""
    named: dict[str, bool] = {}
    for phase in phases:
        rewritten = () if phase.left_out(mode, run_type) else phase.rewritten(run_type)
        for table in phase.tables:
            named[table] = named.get(table, False) or table in rewritten
    new = [table for table, is_new in named.items() if is_new]
    return new, [table for table in named if table not in new]
