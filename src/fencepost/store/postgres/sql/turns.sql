-- The first jobs that are due for a replica: by priority, then the longest due. They are locked, and those that others
-- have locked are passed over: two claims never work on the same job.
--
-- Usually a claim walks through what is due in its pool, in order, and passes over the few jobs of tasks that the replica
-- does not know. If 20 more are due there than it wants it counts its own among these first. If they are too few it asks
-- for each task that the replica knows. A replica that knows more than 200 walks on: asking could cost more.
--
-- Plans are made for empty tables, and these statements are written so that any plan is right. Without bitmaps, which
-- would be of all that is due.

create or replace function {schema}.turns(
    p_replica text, p_leads boolean, p_wall bigint, p_limit bigint, p_aside text[])
returns text[] language plpgsql set enable_bitmapscan = off as $$
declare
    its_pools text[] := {schema}.pools(p_replica);
    found_ids text[];
    next_ids text[];
    wanted bigint;
    by_task boolean;
begin
    select array_agg(due.id order by due.priority desc, due.look_at, due.id) into found_ids from (
        select j.id, j.priority, j.look_at from {schema}.jobs j
        where split_part(j.target, '@', 2) = any(its_pools) and j.look_at <= p_wall
            and j.priority > 0 and (p_leads or not j.leader_only) and j.id <> all(p_aside)
            and (select true from {schema}.replica_targets k where k.replica = p_replica and k.target = j.target)
        order by j.priority desc, j.look_at, j.id limit p_limit
        for no key update of j skip locked) due;
    if cardinality(found_ids) >= p_limit then return found_ids; end if;

    wanted := p_limit - coalesce(cardinality(found_ids), 0);
    perform 1 from unnest(its_pools) as its (pool) cross join lateral (
        select 1 from {schema}.jobs j where split_part(j.target, '@', 2) = its.pool and j.look_at <= p_wall
            order by j.look_at, j.id offset wanted + 20 limit 1) more limit 1;
    by_task := found and {schema}.is_crowded_out(p_replica, its_pools, p_wall, wanted);
    if by_task or cardinality(its_pools) > 1 then
        next_ids := {schema}.turns_of_many(p_replica, its_pools, by_task, p_leads, p_wall, wanted, p_aside);
    else
        select array_agg(due.id order by due.look_at, due.id) into next_ids from (
            select j.id, j.look_at from {schema}.jobs j
            where split_part(j.target, '@', 2) = its_pools[1] and j.look_at <= p_wall
                and j.priority = 0 and (p_leads or not j.leader_only) and j.id <> all(p_aside)
                and (select true from {schema}.replica_targets k where k.replica = p_replica and k.target = j.target)
            order by j.look_at, j.id limit wanted
            for no key update of j skip locked) due;
    end if;
    found_ids := found_ids || next_ids;
    if cardinality(found_ids) >= p_limit then return found_ids; end if;

    select array_agg(due.id order by due.priority desc, due.look_at, due.id) into next_ids from (
        select j.id, j.priority, j.look_at from {schema}.jobs j
        where split_part(j.target, '@', 2) = any(its_pools) and j.look_at <= p_wall
            and j.priority < 0 and (p_leads or not j.leader_only) and j.id <> all(p_aside)
            and (select true from {schema}.replica_targets k where k.replica = p_replica and k.target = j.target)
        order by j.priority desc, j.look_at, j.id limit p_limit - coalesce(cardinality(found_ids), 0)
        for no key update of j skip locked) due;
    return found_ids || next_ids;
end $$;

-- Whether a pool of this replica is full of jobs that it does not know.
create or replace function {schema}.is_crowded_out(p_replica text, p_pools text[], p_wall bigint, p_limit bigint)
returns boolean language plpgsql as $$
declare
    its_pool text;
begin
    foreach its_pool in array p_pools loop
        perform 1 from {schema}.jobs j where split_part(j.target, '@', 2) = its_pool and j.look_at <= p_wall
            order by j.look_at, j.id offset p_limit + 20 limit 1;
        if found and (select count(*) < p_limit from (
                select j.target from {schema}.jobs j
                where split_part(j.target, '@', 2) = its_pool and j.look_at <= p_wall
                order by j.look_at, j.id limit p_limit + 20) first
                where (select true from {schema}.replica_targets k
                    where k.replica = p_replica and k.target = first.target))
        then
            return (select true from {schema}.replica_targets k where k.replica = p_replica offset 200 limit 1) is null;
        end if;
    end loop;
    return false;
end $$;

-- The same as `turns`, of the jobs with the priority 0, from several pools or from each task. Their first are found, and
-- then locked in order. While too many of them are locked by others, more are found.
--
-- Bounds and order by task are served by `jobs_due` alone; for `target = …` the planner may walk through a pool, as long
-- as it knows of one task only, and so it may for `look_at <= …` beside a list of ids.
create or replace function {schema}.turns_of_many(
    p_replica text, p_pools text[], p_by_task boolean, p_leads boolean, p_wall bigint, p_limit bigint, p_aside text[])
returns text[] language plpgsql set enable_bitmapscan = off as $$
declare
    number bigint := greatest(p_limit, 1);
    first_ids text[];
    found_ids text[];
begin
    loop
        if p_by_task then
            first_ids := array(
                select first.id from {schema}.replica_targets k cross join lateral (
                    select j.id, j.look_at from {schema}.jobs j
                    where j.target >= k.target and (j.target, j.look_at) <= (k.target, p_wall) and j.look_at is not null
                        and j.priority = 0 and (p_leads or not j.leader_only) and j.id <> all(p_aside)
                    order by j.target, j.look_at, j.id limit number) first
                where k.replica = p_replica order by first.look_at, first.id limit number);
        else
            first_ids := array(
                select first.id from unnest(p_pools) as its (pool) cross join lateral (
                    select j.id, j.look_at from {schema}.jobs j
                    where split_part(j.target, '@', 2) = its.pool and j.look_at <= p_wall
                        and j.priority = 0 and (p_leads or not j.leader_only) and j.id <> all(p_aside)
                        and (select true from {schema}.replica_targets k
                            where k.replica = p_replica and k.target = j.target)
                    order by j.look_at, j.id limit number) first
                order by first.look_at, first.id limit number);
        end if;
        select array_agg(due.id order by due.look_at, due.id) into found_ids from (
            select j.id, j.look_at from {schema}.jobs j
            where j.id = any(first_ids) and j.priority = 0 and coalesce(j.look_at <= p_wall, false)
                and (p_leads or not j.leader_only)
                and (select true from {schema}.replica_targets k where k.replica = p_replica and k.target = j.target)
            order by j.look_at, j.id limit p_limit
            for no key update of j skip locked) due;
        exit when cardinality(found_ids) >= p_limit or cardinality(first_ids) < number;
        number := number * 4;
    end loop;
    return found_ids;
end $$;

-- From before there were pools in the indexes.
drop function if exists {schema}.turns_by_task, {schema}.is_crowded_out(text, bigint, bigint);
