-- What is due, by the pool where it may run: what waits in one pool is not seen by replicas of another, however much it
-- is. A target is `task`, `task@pool` or `@engine`: what follows the `@` is the pool here. The pool `default` is ''.
--
-- In the indexes of the jobs above and below the priority 0 is nothing where no job has another.

create index if not exists jobs_by_pool on {schema}.jobs (split_part(target, '@', 2), look_at, id) where look_at is not null;
create index if not exists jobs_above_by_pool on {schema}.jobs (split_part(target, '@', 2), look_at)
    where priority > 0 and look_at is not null;
create index if not exists jobs_below_by_pool on {schema}.jobs (split_part(target, '@', 2), look_at)
    where priority < 0 and look_at is not null;
drop index if exists {schema}.jobs_look, {schema}.jobs_above, {schema}.jobs_below;

-- `target is not null` is always true. It keeps this index from statements that do not ask for a task: one that asks for
-- all that is due would read the whole of it.
create index if not exists jobs_due on {schema}.jobs (target, look_at, id)
    where target is not null and look_at is not null;

create index if not exists replica_pools on {schema}.replica_targets (replica, split_part(target, '@', 2));

-- The pools of a replica. One step through the index for each, not for each task.
create or replace function {schema}.pools(p_replica text) returns text[] language plpgsql as $$
declare
    its_pools text[] := array[]::text[];
    its_pool text;
begin
    select split_part(k.target, '@', 2) into its_pool from {schema}.replica_targets k
        where k.replica = p_replica order by split_part(k.target, '@', 2) limit 1;
    while found loop
        its_pools := its_pools || its_pool;
        select split_part(k.target, '@', 2) into its_pool from {schema}.replica_targets k
            where k.replica = p_replica and split_part(k.target, '@', 2) > its_pool
            order by split_part(k.target, '@', 2) limit 1;
    end loop;
    return its_pools;
end $$;
