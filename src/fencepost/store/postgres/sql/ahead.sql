-- What is to be decided next: as in `turns` pool by pool, and task by task where a pool is full of jobs that the replica
-- does not know.

-- When this replica has something to decide next, but for the jobs in `p_passed`.
create or replace function {schema}.soonest(p_replica text, p_leads boolean, p_passed text[])
returns bigint language plpgsql set enable_bitmapscan = off as $$
declare
    its_pools text[] := {schema}.pools(p_replica);
    its_pool text;
    its_first bigint;
    soonest bigint;
    is_crowded boolean := false;
begin
    foreach its_pool in array its_pools loop
        select j.look_at into its_first from (
                select j.* from {schema}.jobs j
                where split_part(j.target, '@', 2) = its_pool and j.look_at is not null and j.id <> all(p_passed)
                order by j.look_at, j.id limit 20) j
            where (p_leads or not j.leader_only)
                and (select true from {schema}.replica_targets k where k.replica = p_replica and k.target = j.target)
            order by j.look_at, j.id limit 1;
        if found then
            soonest := least(soonest, its_first);
        else
            perform 1 from {schema}.jobs j where split_part(j.target, '@', 2) = its_pool and j.look_at is not null
                order by j.look_at, j.id offset 20 limit 1;
            is_crowded := is_crowded or found;
        end if;
    end loop;
    if not is_crowded then return soonest; end if;

    if (select true from {schema}.replica_targets k where k.replica = p_replica offset 200 limit 1) is null then
        select min(first.look_at) into soonest from {schema}.replica_targets k cross join lateral (
                select j.look_at from {schema}.jobs j
                where j.target >= k.target and j.target <= k.target and j.look_at is not null
                    and (p_leads or not j.leader_only) and j.id <> all(p_passed)
                order by j.target, j.look_at, j.id limit 1) first
            where k.replica = p_replica;
    else
        select min(first.look_at) into soonest from unnest(its_pools) as its (pool) cross join lateral (
                select j.look_at from {schema}.jobs j
                where split_part(j.target, '@', 2) = its.pool and j.look_at is not null
                    and (p_leads or not j.leader_only) and j.id <> all(p_passed)
                    and (select true from {schema}.replica_targets k where k.replica = p_replica and k.target = j.target)
                order by j.look_at, j.id limit 1) first;
    end if;
    return soonest;
end $$;

-- The same for any replica. One step through the index for each pool.
create or replace function {schema}.soonest_of_all(p_passed text[])
returns bigint language plpgsql set enable_bitmapscan = off as $$
declare
    its_pool text;
    its_first bigint;
    soonest bigint;
begin
    select split_part(j.target, '@', 2), j.look_at into its_pool, its_first from {schema}.jobs j
        where j.look_at is not null and j.id <> all(p_passed)
        order by split_part(j.target, '@', 2), j.look_at, j.id limit 1;
    while found loop
        soonest := least(soonest, its_first);
        select split_part(j.target, '@', 2), j.look_at into its_pool, its_first from {schema}.jobs j
            where split_part(j.target, '@', 2) > its_pool and j.look_at is not null and j.id <> all(p_passed)
            order by split_part(j.target, '@', 2), j.look_at, j.id limit 1;
    end loop;
    return soonest;
end $$;

-- What this replica has to decide next, one per job, but for the jobs in `p_passed`: when, whether only the leader may, and
-- the job.
-- Null without a limit, and if it knows too many tasks to ask for each, beside a crowd of jobs that it cannot run.
create or replace function {schema}.upcoming(
    p_replica text, p_leads boolean, p_passed text[], p_limit bigint,
    out moments bigint[], out leader_only boolean[], out ids text[]
) language plpgsql set enable_bitmapscan = off as $$
declare
    walk bigint := 4 * p_limit + 20;
    its_pools text[];
    upto bigint;                           -- of each pool all that comes before it was looked at; null: all there is
begin
    if p_limit is null then return; end if;
    its_pools := {schema}.pools(p_replica);
    select coalesce(array_agg(first.look_at), array[]::bigint[]),
            coalesce(array_agg(first.leader_only), array[]::boolean[]),
            coalesce(array_agg(first.id), array[]::text[])
            into moments, leader_only, ids from (
        select j.* from unnest(its_pools) as its (pool) cross join lateral (
            select j.look_at, j.leader_only, j.id from (
                select j.id, j.look_at, j.leader_only, j.target from {schema}.jobs j
                where split_part(j.target, '@', 2) = its.pool and j.look_at is not null and j.id <> all(p_passed)
                order by j.look_at, j.id limit walk) j
            where (p_leads or not j.leader_only)
                and (select true from {schema}.replica_targets k where k.replica = p_replica and k.target = j.target)
            order by j.look_at, j.id limit p_limit) j
        order by j.look_at, j.id limit p_limit) first;
    if cardinality(moments) >= p_limit and cardinality(its_pools) = 1 then return; end if;

    select min(next.look_at) into upto from unnest(its_pools) as its (pool) cross join lateral (
        select j.look_at from {schema}.jobs j
        where split_part(j.target, '@', 2) = its.pool and j.look_at is not null and j.id <> all(p_passed)
        order by j.look_at, j.id offset walk limit 1) next;
    if upto is null or cardinality(moments) >= p_limit and moments[p_limit] < upto then return; end if;
    select u.moments, u.leader_only, u.ids into moments, leader_only, ids
        from {schema}.upcoming_by_task(p_replica, p_leads, p_passed, p_limit) u;
end $$;

-- The same, task by task: the first job of each, and then what follows in those tasks that come first.
create or replace function {schema}.upcoming_by_task(
    p_replica text, p_leads boolean, p_passed text[], p_limit bigint,
    out moments bigint[], out leader_only boolean[], out ids text[]
) language plpgsql set enable_bitmapscan = off as $$
declare
    tasks text[];
    upto bigint;                           -- what comes later is not among the first
begin
    if (select true from {schema}.replica_targets k where k.replica = p_replica offset 200 limit 1) then return; end if;
    select array_agg(head.target), case when count(*) >= p_limit then max(head.look_at) end into tasks, upto from (
        select k.target, first.look_at from {schema}.replica_targets k cross join lateral (
            select j.look_at from {schema}.jobs j
            where j.target >= k.target and j.target <= k.target and j.look_at is not null
                and (p_leads or not j.leader_only) and j.id <> all(p_passed)
            order by j.target, j.look_at, j.id limit 1) first
        where k.replica = p_replica order by first.look_at limit p_limit) head;
    if cardinality(tasks) * p_limit > 4000 then return; end if;
    select coalesce(array_agg(found.look_at), array[]::bigint[]),
            coalesce(array_agg(found.leader_only), array[]::boolean[]),
            coalesce(array_agg(found.id), array[]::text[])
            into moments, leader_only, ids from (
        select first.look_at, first.leader_only, first.id from unnest(tasks) as t (target) cross join lateral (
            select j.look_at, j.leader_only, j.id from {schema}.jobs j
            where j.target >= t.target and j.target <= t.target and j.look_at is not null
                and (upto is null or j.look_at <= upto)
                and (p_leads or not j.leader_only) and j.id <> all(p_passed)
            order by j.target, j.look_at, j.id limit p_limit) first
        order by first.look_at, first.id limit p_limit) found;
end $$;
