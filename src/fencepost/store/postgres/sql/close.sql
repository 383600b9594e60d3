-- Neighbours that never started and share one fate: one row. They join the job's last such row if nothing lies between.

create type {schema}.closing as (
    job_id text,
    place bigint,
    first bigint,
    last bigint,
    number bigint,
    late boolean,                          -- coalesced into the claimed one; else they overlap it
    claimed bigint
);

create function {schema}.fire_key(p_job text, p_due bigint) returns text language sql immutable as $$
    select p_job || '@' || to_char(timestamp 'epoch' + p_due * interval '1 microsecond', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
$$;
