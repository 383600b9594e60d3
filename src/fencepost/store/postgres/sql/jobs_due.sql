-- What is due for a replica, beside a crowd that is not for it: fires of a pool that has no replica, or more than the
-- replicas of that pool can run. Usually a claim walks through what is due, in order, and passes over the few jobs of
-- others. If there are 20 more than it wants it counts its own among these first. If they are too few it asks for each
-- task that the replica knows. A replica that knows more than 200 walks on: asking could cost more.
--
-- `target is not null` is always true. It keeps this index from statements that do not ask for a task: one that asks for
-- all that is due would read the whole of it.
create index if not exists jobs_due on {schema}.jobs (target, look_at, id)
    where target is not null and look_at is not null;

create or replace function {schema}.is_crowded_out(p_replica text, p_wall bigint, p_limit bigint)
returns boolean language plpgsql as $$
begin
    -- A crowd at the very front is seen by its first 20.
    if (select true from (
            select j.target from {schema}.jobs j where j.look_at <= p_wall order by j.look_at, j.id limit 20) first
            where (select true from {schema}.replica_targets k where k.replica = p_replica and k.target = first.target)
            limit 1) is null then
        return (select true from {schema}.replica_targets k where k.replica = p_replica offset 200 limit 1) is null;
    end if;
    return (select count(*) < p_limit from (
            select j.target from {schema}.jobs j where j.look_at <= p_wall order by j.look_at, j.id limit p_limit + 20) first
            where (select true from {schema}.replica_targets k where k.replica = p_replica and k.target = first.target))
        and (select true from {schema}.replica_targets k where k.replica = p_replica offset 200 limit 1) is null;
end $$;

-- The same as `turns`, of the jobs with the priority 0. The first of all tasks are found, and then locked in their order.
-- While too many of them are locked by others, more are found.
--
-- Plans are made for empty tables, and these statements are written so that any plan is right. Bounds and order by task
-- are served by `jobs_due` alone; for `target = …` the planner may walk through `jobs_look`, as long as it knows of one
-- task only, and so it may for `look_at <= …` beside a list of ids. A bitmap would be of all jobs of a task, sorted.
create or replace function {schema}.turns_by_task(
    p_replica text, p_leads boolean, p_wall bigint, p_limit bigint, p_aside text[])
returns text[] language plpgsql set enable_bitmapscan = off as $$
declare
    number bigint := greatest(p_limit, 1);
    first_ids text[];
    found_ids text[];
begin
    loop
        first_ids := array(
            select first.id from {schema}.replica_targets k cross join lateral (
                select j.id, j.look_at from {schema}.jobs j
                where j.target >= k.target and (j.target, j.look_at) <= (k.target, p_wall) and j.look_at is not null
                    and j.priority = 0 and (p_leads or not j.leader_only) and j.id <> all(p_aside)
                order by j.target, j.look_at, j.id limit number) first
            where k.replica = p_replica order by first.look_at, first.id limit number);
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

-- When this replica has something to decide next, but for the jobs in `p_passed`.
create or replace function {schema}.soonest(p_replica text, p_leads boolean, p_passed text[])
returns bigint language plpgsql set enable_bitmapscan = off as $$
declare
    soonest bigint;
begin
    select j.look_at into soonest from (
            select j.* from {schema}.jobs j where j.look_at is not null and j.id <> all(p_passed)
            order by j.look_at, j.id limit 20) j
        where (p_leads or not j.leader_only)
            and (select true from {schema}.replica_targets k where k.replica = p_replica and k.target = j.target)
        order by j.look_at, j.id limit 1;
    if found then return soonest; end if;

    if (select true from {schema}.replica_targets k where k.replica = p_replica offset 200 limit 1) is null then
        select min(first.look_at) into soonest from {schema}.replica_targets k cross join lateral (
                select j.look_at from {schema}.jobs j
                where j.target >= k.target and j.target <= k.target and j.look_at is not null
                    and (p_leads or not j.leader_only) and j.id <> all(p_passed)
                order by j.target, j.look_at, j.id limit 1) first
            where k.replica = p_replica;
    else
        select j.look_at into soonest from {schema}.jobs j
            where j.look_at is not null and (p_leads or not j.leader_only) and j.id <> all(p_passed)
                and (select true from {schema}.replica_targets k where k.replica = p_replica and k.target = j.target)
            order by j.look_at, j.id limit 1;
    end if;
    return soonest;
end $$;
