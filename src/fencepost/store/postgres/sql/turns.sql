-- Who comes first of what is due: the highest priority, then the longest due. Nearly all jobs have the priority 0; those
-- above and below are found by indexes of their own, which are empty where no job has another.
alter table {schema}.jobs add column priority smallint not null default 0;
create index jobs_above on {schema}.jobs (look_at) where priority > 0 and look_at is not null;
create index jobs_below on {schema}.jobs (look_at) where priority < 0 and look_at is not null;

-- The first jobs that are due for this replica, in their order. They are locked, and those that others have locked are
-- passed over: two claims never work on the same job. Without bitmaps, which would be of all that is due.
create function {schema}.turns(p_replica text, p_leads boolean, p_wall bigint, p_limit bigint, p_aside text[])
returns text[] language plpgsql set enable_bitmapscan = off as $$
declare
    found_ids text[];
    next_ids text[];
    wanted bigint;
begin
    select array_agg(due.id order by due.priority desc, due.look_at, due.id) into found_ids from (
        select j.id, j.priority, j.look_at from {schema}.jobs j
        where j.priority > 0 and j.look_at <= p_wall and (p_leads or not j.leader_only) and j.id <> all(p_aside)
            and (select true from {schema}.replica_targets k where k.replica = p_replica and k.target = j.target)
        order by j.priority desc, j.look_at, j.id limit p_limit
        for no key update of j skip locked) due;
    if cardinality(found_ids) >= p_limit then return found_ids; end if;

    wanted := p_limit - coalesce(cardinality(found_ids), 0);
    perform 1 from {schema}.jobs j where j.look_at <= p_wall order by j.look_at, j.id offset wanted + 20 limit 1;
    if found and {schema}.is_crowded_out(p_replica, p_wall, wanted) then
        next_ids := {schema}.turns_by_task(p_replica, p_leads, p_wall, wanted, p_aside);
    else
        select array_agg(due.id order by due.look_at, due.id) into next_ids from (
            select j.id, j.look_at from {schema}.jobs j
            where j.priority = 0 and j.look_at <= p_wall and (p_leads or not j.leader_only) and j.id <> all(p_aside)
                and (select true from {schema}.replica_targets k where k.replica = p_replica and k.target = j.target)
            order by j.look_at, j.id limit wanted
            for no key update of j skip locked) due;
    end if;
    found_ids := found_ids || next_ids;
    if cardinality(found_ids) >= p_limit then return found_ids; end if;

    select array_agg(due.id order by due.priority desc, due.look_at, due.id) into next_ids from (
        select j.id, j.priority, j.look_at from {schema}.jobs j
        where j.priority < 0 and j.look_at <= p_wall and (p_leads or not j.leader_only) and j.id <> all(p_aside)
            and (select true from {schema}.replica_targets k where k.replica = p_replica and k.target = j.target)
        order by j.priority desc, j.look_at, j.id limit p_limit - coalesce(cardinality(found_ids), 0)
        for no key update of j skip locked) due;
    return found_ids || next_ids;
end $$;
