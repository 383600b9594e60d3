"""How SQLite loads rows."""

from __future__ import annotations

from fencepost.store.sql.load import SqlLoad
from fencepost.store.sql.rows import FIRES
from fencepost.store.sqlite.values import ACTIVE, NEXT


class SqliteLoad(SqlLoad):
    ACTIVE = f"{FIRES} where {ACTIVE} and job_id"
    DUE = f"{FIRES} where finished_at is null and due_at <= ? and job_id"
    FOLLOWING = f"select id, ({NEXT}) from {{jobs}} as jobs where id"
