"""What SQLite is asked for jobs and fires."""

from __future__ import annotations

from fencepost.store.sql.rows import FIRES, JOBS, OUTCOME

OUTCOME_MARKS = ", ".join("?" * (len(OUTCOME) + 1))
PLACES_FOR_COPIES = (
    "pragma temp_store = memory",
    f"create temp table found_jobs as {JOBS} is null",
    f"create temp table found_fires as {FIRES} where key is null",
)
# Word for word the condition of an index: only then is it used.
ACTIVE = "state in ('running', 'waiting')"
NEXT = (
    "select due_at from {fires} where job_id = jobs.id and finished_at is null and due_at > ?"
    " and state not in ('running', 'waiting') order by due_at limit 1"
)
