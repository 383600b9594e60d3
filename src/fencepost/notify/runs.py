"""What channels that watch each run share: ids derived from the fire, names of jobs elsewhere, the state of a run."""

from __future__ import annotations

import hashlib
import re
from typing import Literal
from uuid import UUID, uuid5

from fencepost.model.notices import Notice

Step = Literal["started", "succeeded", "failed"]
_SPACE = UUID("7d0f6a52-6a0c-5c3e-9a51-0f5ce2fe9c05")
"""Under which ids of runs are derived."""


def step_of(notice: Notice) -> Step | None:
    """None: it says nothing of a run, as `recovered` or `late`."""
    if notice.cause in ("started", "succeeded"):
        return "started" if notice.cause == "started" else "succeeded"
    return "failed" if notice.cause in ("failed", "missed", "lost") else None


def run_id(notice: Notice, *more: str) -> UUID:
    """The same for all that is said of one fire, by whichever replica, however often."""
    namespace = str(notice.details.get("namespace") or "")
    return uuid5(_SPACE, "\n".join((namespace, notice.fire or notice.id, *more)))


def slug_of(job_id: str, longest: int) -> str:
    """The id itself where it is a slug; else one made of it, with a part of a hash so that no two jobs share it."""
    if re.fullmatch(rf"(?![0-9]+$)[a-z0-9_-]{{1,{longest}}}", job_id):
        return job_id
    readable = re.sub(r"[^a-z0-9_]+", "-", job_id.lower()).strip("-")[: longest - 9].strip("-")
    return f"{readable or 'job'}-{hashlib.sha256(job_id.encode()).hexdigest()[:8]}"
