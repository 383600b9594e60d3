-- What this replica has to decide next, one per job, but for the jobs in `p_passed`: when, and whether only the leader may.
-- Null without a limit, and if too many jobs that it cannot run would have to be passed over.
create function {schema}.upcoming(
    p_replica text, p_leads boolean, p_passed text[], p_limit bigint,
    out moments bigint[], out leader_only boolean[]
) language plpgsql set enable_bitmapscan = off as $$
declare
    walk bigint := 4 * p_limit + 20;
begin
    if p_limit is null then return; end if;
    select coalesce(array_agg(first.look_at), array[]::bigint[]), coalesce(array_agg(first.leader_only), array[]::boolean[])
            into moments, leader_only from (
        select j.look_at, j.leader_only from (
            select j.id, j.look_at, j.leader_only, j.target from {schema}.jobs j
            where j.look_at is not null and j.id <> all(p_passed)
            order by j.look_at, j.id limit walk) j
        where (p_leads or not j.leader_only)
            and (select true from {schema}.replica_targets k where k.replica = p_replica and k.target = j.target)
        order by j.look_at, j.id limit p_limit) first;
    if cardinality(moments) < p_limit then
        perform 1 from {schema}.jobs j where j.look_at is not null order by j.look_at, j.id offset walk limit 1;
        if found then
            moments := null;
            leader_only := null;
        end if;
    end if;
end $$;
