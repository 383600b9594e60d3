-- What this replica has to decide next, one per job, but for the jobs in `p_passed`: when, whether only the leader may, and
-- the job.
-- Null without a limit, and if it knows too many tasks to ask for each, beside a crowd of jobs that it cannot run.
create function {schema}.upcoming(
    p_replica text, p_leads boolean, p_passed text[], p_limit bigint,
    out moments bigint[], out leader_only boolean[], out ids text[]
) language plpgsql set enable_bitmapscan = off as $$
declare
    walk bigint := 4 * p_limit + 20;
begin
    if p_limit is null then return; end if;
    -- A crowd at the very front, as of a pool without a replica, is seen by its first 20.
    if (select true from (
            select j.target from {schema}.jobs j where j.look_at is not null order by j.look_at, j.id limit 20) first
            where (select true from {schema}.replica_targets k where k.replica = p_replica and k.target = first.target)
            limit 1) then
        select coalesce(array_agg(first.look_at), array[]::bigint[]),
                coalesce(array_agg(first.leader_only), array[]::boolean[]),
                coalesce(array_agg(first.id), array[]::text[])
                into moments, leader_only, ids from (
            select j.look_at, j.leader_only, j.id from (
                select j.id, j.look_at, j.leader_only, j.target from {schema}.jobs j
                where j.look_at is not null and j.id <> all(p_passed)
                order by j.look_at, j.id limit walk) j
            where (p_leads or not j.leader_only)
                and (select true from {schema}.replica_targets k where k.replica = p_replica and k.target = j.target)
            order by j.look_at, j.id limit p_limit) first;
        if cardinality(moments) >= p_limit then return; end if;
        perform 1 from {schema}.jobs j where j.look_at is not null order by j.look_at, j.id offset walk limit 1;
        if not found then return; end if;
    end if;
    select u.moments, u.leader_only, u.ids into moments, leader_only, ids
        from {schema}.upcoming_by_task(p_replica, p_leads, p_passed, p_limit) u;
end $$;

-- The same, task by task: the first job of each, and then what follows in those tasks that come first. See `jobs_due` for
-- how these statements are written.
create function {schema}.upcoming_by_task(
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
