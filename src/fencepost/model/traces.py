"""Trace contexts as W3C `traceparent` text: the one form in which they are stored, sent and handed to processes."""

from __future__ import annotations

import re

# Of a version that is not known yet, what it shares with version 00 is read, and the rest left.
_FORM = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
LIMIT = 512
"""Characters that are looked at; a traceparent of today has 55."""

CALLER = "caller"
"""In `FireRecord.trace`: the context in which the fire was triggered."""
RUN = "run"
"""In `FireRecord.trace`: the context of the run that began last."""


def clean_traceparent(text: object) -> str | None:
    """As version 00. None: it is none, which W3C has receivers ignore."""
    if not isinstance(text, str) or len(text) > LIMIT:
        return None
    found = _FORM.fullmatch(text.strip())
    if found is None or (text.strip().startswith("00-") and found[4]):
        return None
    return f"00-{found[1]}-{found[2]}-{found[3]}"


def trace_ids(traceparent: str) -> tuple[str, str]:
    """The ids of the trace and of the span."""
    _, trace_id, span_id, _ = traceparent.split("-")
    return trace_id, span_id
