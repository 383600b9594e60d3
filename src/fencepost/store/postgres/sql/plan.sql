-- Write plans of plain jobs: rows of one fire each, of a calendar that does not end with them and is not behind
-- afterwards. Everything else, and a plan that somebody else was faster with, needs a careful step.
--
-- The jobs are held although most of their rows do not change: a claim that has just taken a job's last planned fire
-- would otherwise put down that there is nothing to look at, and not see what is planned here.

create or replace function {schema}.plan(
    p_jobs text[], p_versions bigint[], p_cursors bigint[], p_untils bigint[], p_lasts bigint[], p_nexts bigint[],
    r_places bigint[], r_dues bigint[], p_wall bigint,
    out planned bigint[]                   -- places of the plans that were written
) language plpgsql as $$
declare
    wall bigint;
    before bigint;
    fit_jobs text[];
    decided bigint[];                      -- by place
begin
    perform {schema}.plainly();
    perform 1 from {schema}.jobs j where j.id = any(p_jobs) order by j.id for no key update;
    wall := coalesce(p_wall, {schema}.wall());
    before := {schema}.soonest_of_all(array[]::text[]);

    with wanted as materialized (
        select w.*, j.decided_through,
                w.next_at > wall and (w.next_at <= w.until) is not false
                and c.version = w.version and c.cursor = w.cursor and c.until is not distinct from w.until
                and wall >= j.plain_since
                and j.look_at is not distinct from
                    (select p.due_at from {schema}.planned p where p.job_id = w.job_id order by p.due_at limit 1)
                and (select true from {schema}.live l where l.job_id = w.job_id and l.state <> 'running' limit 1) is null
                as fits
            from unnest(p_jobs, p_versions, p_cursors, p_untils, p_lasts, p_nexts)
                with ordinality as w (job_id, version, cursor, until, last, next_at, place)
            left join lateral (select * from {schema}.jobs where jobs.id = w.job_id limit 1) j on true
            left join lateral (select * from {schema}.calendars where calendars.job_id = w.job_id limit 1) c on true),
    moved as (
        -- They are there: this only ever updates them.
        insert into {schema}.calendars as c (job_id, cursor, next_at)
            select w.job_id, w.last, w.next_at from wanted w where w.fits
            on conflict (job_id) do update
                set cursor = excluded.cursor, next_at = excluded.next_at, plan_at = excluded.next_at)
    select array_agg(w.place) filter (where w.fits), array_agg(w.job_id) filter (where w.fits),
            array_agg(w.decided_through order by w.place)
        into planned, fit_jobs, decided from wanted w;

    insert into {schema}.planned as p (job_id, due_at)
        select p_jobs[r.place], r.due_at from unnest(r_places, r_dues) as r (place, due_at)
            where r.place = any(planned) and (r.due_at > decided[r.place]) is not false
        on conflict do nothing;
    update {schema}.jobs j
        set look_at = (select p.due_at from {schema}.planned p where p.job_id = j.id order by p.due_at limit 1)
        where j.id = any(fit_jobs) and j.look_at is null;

    -- What is due already may wait for a pool without a replica: it does not say when replicas will ask next.
    if (before > wall and before <= (select min(r.due_at) from unnest(r_dues) as r (due_at))) is not true
            and cardinality(r_dues) > 0 then
        perform {schema}.hint();  -- somebody may be asleep until then
    end if;
end $$;
