"""What a role may do that takes part and owns nothing: SQL for the role that owns the namespace's schema."""

from __future__ import annotations

from fencepost.store.postgres.inbox import TABLE
from fencepost.store.postgres.names import PostgresNames

# The default privileges hold for what the same owner adds in a later upgrade. MAINTAIN lets the leader vacuum the two
# tables in which every fire leaves dead rows; before PostgreSQL 17 that is left to autovacuum.
GRANTS = """\
grant usage on schema {schema} to {role};
grant select, insert, update, delete on all tables in schema {schema} to {role};
grant usage, select on all sequences in schema {schema} to {role};
grant execute on all functions in schema {schema} to {role};
alter default privileges in schema {schema} grant select, insert, update, delete on tables to {role};
alter default privileges in schema {schema} grant usage, select on sequences to {role};
alter default privileges in schema {schema} grant execute on functions to {role};
do $$ begin
    if current_setting('server_version_num')::integer >= 170000 then
        execute 'grant maintain on {schema}.jobs, {schema}.live to {role_in_text}';
    end if;
end $$;
"""


def grants(namespace: str, role: str, transactions: bool = False) -> str:
    """`transactions`: also the table for triggers inside of callers' transactions, which is else made by the first."""
    quoted = '"' + role.replace('"', '""') + '"'
    text = f"{TABLE.strip()};\n{GRANTS}" if transactions else GRANTS
    text = text.replace("{role_in_text}", quoted.replace("'", "''")).replace("{role}", quoted)
    return PostgresNames(namespace).sql(text).decode()
