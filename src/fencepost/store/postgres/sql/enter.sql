-- How every step begins. There are three kinds:
--
-- * a plain step is whole on the server. Many go on at once.
-- * a careful step decides in Python, over several statements. Most concern few jobs: they hold the rows of these in
--   `jobs`, and go on beside others.
-- * a step that concerns more than that is alone: it waits until all others have ended, and holds off new ones until it
--   has.
--
-- Whatever changes a job, its calendar or its fires holds the job's row, or is alone. Locks are taken first and
-- everything is read afterwards, by later statements: a statement sees what was committed when it began, so one that
-- took a lock and read as well would see the state before the lock. The time is read under the lock, too: steps on a
-- job follow each other in the order of their moments.

create function {schema}.wall() returns bigint language sql volatile as
$$ select (extract(epoch from clock_timestamp()) * 1000000)::bigint $$;

create function {schema}.enter() returns void language plpgsql as $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'Fencepost needs the isolation level "read committed"'
            using errcode = 'feature_not_supported',
            hint = 'alter role … set default_transaction_isolation = ''read committed''';
    end if;
    if current_setting('synchronous_commit') = 'off' then
        perform set_config('synchronous_commit', 'on', true);  -- what was answered must be on disk
    end if;
    perform set_config('lock_timeout', '{lock_timeout}', true), set_config('jit', 'off', true),
        set_config('enable_seqscan', 'off', true);
end $$;

create function {schema}.plainly() returns void language plpgsql as $$
begin
    perform {schema}.enter();
    -- Planning what follows would cost more than doing it. It is written so that one plan is right for all.
    perform set_config('plan_cache_mode', 'force_generic_plan', true);
    perform pg_advisory_xact_lock_shared({lock});
end $$;

create function {schema}.carefully(p_jobs text[]) returns bigint language plpgsql as $$
begin
    perform {schema}.enter();
    -- Others wait for this one: whoever is stopped in the middle of it is thrown out.
    perform set_config('idle_in_transaction_session_timeout', '{idle_timeout}', true),
        set_config('statement_timeout', '{statement_timeout}', true);
    perform pg_advisory_xact_lock_shared({lock});
    perform 1 from {schema}.jobs j where j.id = any(p_jobs) order by j.id for no key update;
    return {schema}.wall();
end $$;

-- One action that is looked at and then acted on: a trigger, a cancel. Whoever finds another at it gets null and comes
-- again: a client that is stopped in the middle of it holds up nobody's connection.
create function {schema}.act(p_job text) returns bigint language plpgsql as $$
begin
    if pg_try_advisory_xact_lock({actions}, hashtext('{schema}.' || p_job)) then
        return {schema}.carefully(array[p_job]);
    end if;
    return null;
end $$;

create function {schema}.alone() returns bigint language plpgsql as $$
begin
    perform {schema}.enter();
    perform set_config('idle_in_transaction_session_timeout', '{idle_timeout}', true),
        set_config('statement_timeout', '{statement_timeout}', true);
    perform pg_advisory_xact_lock({lock});
    return {schema}.wall();
end $$;
