-- Claim plain fires: see docs/decisions/0018-postgresql.md. One call, one round trip.
--
-- A job is plain at this moment if all its due fires are scheduled and alone in their rows, outside of every gap, nothing
-- of it is running, queued or waiting, none was asked for later, and what becomes of them is one of these:
--
-- * one is due, in time: it is claimed;
-- * several are due, in time, and the job skips what overlaps: the first is claimed, the others are closed;
-- * the first is late, the job wants the latest, and its calendar is planned up to now: the last is claimed, the others are
--   coalesced into it.
--
-- Several are due when there is more to do than can be done. It must not be then that every job needs a careful step.
--
-- Each such job gives one claim, so the jobs are taken in their order until the room is used up. A job that is not plain
-- may claim several, or none: those after it can only be claimed here if there is room for them whatever it does. What is
-- left is for a careful step (`more`).
--
-- Statements here, as in all these functions, reach each table by its key: for a list of keys, or once for each row of
-- what was asked. A join would leave the order to the planner, and its plan outlives what it was made for: one made for
-- empty tables read all that was live for every run that ended.

create or replace function {schema}.claim(
    p_replica text, p_number bigint, p_room bigint, p_term bigint, p_incarnation bigint, p_server text,
    p_wall bigint, p_steady double precision,
    out plain boolean,                     -- false: nothing was done, a careful step must do it all
    out wall bigint, out steps bigint,
    out job_ids text[], out dues bigint[], out tokens bigint[], out definitions text[],
    out closed {schema}.closing[],
    out candidates text[],                 -- the jobs looked at, in their order
    out more text[],                       -- those of them that need a careful step
    out soonest bigint,                    -- when this replica has something to do next
    out contended boolean                  -- somebody else is at work on what is due
) language plpgsql as $$
declare
    leads boolean;
    first_token bigint;
    lost_through bigint;
    others bigint;                         -- the place of the first job that is not plain
    closings {schema}.closing[];
    closing {schema}.closing;
begin
    perform {schema}.plainly();
    wall := coalesce(p_wall, {schema}.wall());
    contended := false;

    select coalesce(lease.holder = p_replica and lease.term = p_term, false), lease.incarnation << 40, lease.lost_through
        into leads, first_token, lost_through
        from {schema}.lease
        where lease.incarnation = p_incarnation and lease.server = p_server and lease.standing = 'settled';
    plain := found;
    if not plain then return; end if;

    -- A claim is a sign of life. Its number is remembered also if nothing is found.
    update {schema}.replicas r
        set claim_no = p_number, renewals = r.renewals + 1, steps = r.steps + 1,
            expires = coalesce(p_steady, wall / 1e6) + r.ttl
        where r.id = p_replica and r.claim_no < p_number and not r.draining
        returning r.steps into steps;
    plain := found;
    if not plain then return; end if;

    candidates := {schema}.turns(p_replica, leads, wall, greatest(p_room, 1), array[]::text[]);

    if candidates is not null then
        -- Under the jobs' locks: a new statement, which sees all that was committed before they were taken.
        with due as materialized (
            select j.id, greatest(j.token, first_token) + 1 as token,
                (select d.definition from {schema}.definitions d where d.job_id = j.id) as definition,
                row_number() over (order by j.priority desc, j.look_at, j.id) as place,
                p.dues, p.number, late.is_late,
                p_room > 0 and wall >= j.plain_since and j.look_at >= j.plain_since
                    and j.look_at > coalesce(lost_through, j.look_at - 1)
                    and p.dues[1] = j.look_at and p.most = 1
                    -- Several are closed as one row only if none between them was decided before.
                    and (p.number = 1 or (j.decided_through >= p.dues[1]) is not true)
                    and case
                        when late.is_late then j.wants_latest
                            and (select c.next_at > wall from {schema}.calendars c where c.job_id = j.id) is not false
                            -- A rule may want to be told of those that are missed.
                            and (p.number = 1 or (select true from {schema}.entries e where e.key = 'rules') is null)
                        else p.number = 1 or j.skips_overlap
                    end
                    and (select true from {schema}.live l where l.job_id = j.id limit 1) is null
                    and (select true from {schema}.later l where l.job_id = j.id limit 1) is null as plain
            from {schema}.jobs j
            cross join lateral (
                select array_agg(f.due_at order by f.due_at) as dues, max(f.count) as most, count(*) as number
                from (select planned.due_at, planned.count from {schema}.planned
                    where planned.job_id = j.id and planned.due_at <= wall order by planned.due_at) f) p
            cross join lateral (select j.look_at < wall - j.misfire_after as is_late) late
            where j.id = any(candidates))
        select array_agg(due.id order by due.place) filter (where due.plain is true),
                array_agg(due.dues[case when due.is_late then due.number else 1 end] order by due.place)
                    filter (where due.plain is true),
                array_agg(due.token order by due.place) filter (where due.plain is true),
                array_agg(due.definition order by due.place) filter (where due.plain is true),
                array_agg(due.id order by due.place) filter (where due.plain is not true),
                min(due.place) filter (where due.plain is not true),
                array_agg(
                    case when due.is_late
                        then (due.id, due.place, due.dues[1], due.dues[due.number - 1], due.number - 1, true,
                            due.dues[due.number])::{schema}.closing
                        else (due.id, due.place, due.dues[2], due.dues[due.number], due.number - 1, false,
                            due.dues[1])::{schema}.closing
                    end order by due.place) filter (where due.plain is true and due.number > 1)
            into job_ids, dues, tokens, definitions, more, others, closings from due;

        if more is not null and cardinality(job_ids) + {schema}.most_claims(more, wall) > p_room then
            job_ids := job_ids[:others - 1];
            dues := dues[:others - 1];
            tokens := tokens[:others - 1];
            definitions := definitions[:others - 1];
        end if;

        if closings is not null then
            foreach closing in array closings loop
                if more is null or closing.job_id = any(job_ids) then
                    closed := closed || {schema}.close(closing, wall);
                end if;
            end loop;
        end if;
        update {schema}.jobs j
            set token = greatest(j.token, first_token) + 1,
                decided_through = greatest(j.decided_through, (select p.due_at from {schema}.planned p
                    where p.job_id = j.id and p.due_at <= wall order by p.due_at desc limit 1)),
                look_at = (select p.due_at from {schema}.planned p
                    where p.job_id = j.id and p.due_at > wall order by p.due_at limit 1)
            where j.id = any(job_ids);
        -- One job after another: for a list of them the planner may walk through all that is due instead.
        delete from {schema}.planned where planned.ctid = any(array(
            select decided.at from unnest(job_ids) as c (job_id) cross join lateral (
                select p.ctid as at from {schema}.planned p
                where p.job_id = c.job_id and p.due_at <= wall order by p.due_at) decided));
        insert into {schema}.live (job_id, due_at, state, token, replica, claim_no, attempt, started_at)
            select d.job_id, d.due_at, 'running', d.token, p_replica, p_number, 1, wall
            from unnest(job_ids, dues, tokens) as d (job_id, due_at, token);
    end if;

    if more is null then
        soonest := {schema}.soonest(p_replica, leads, array[]::text[]);
        contended := soonest <= wall and coalesce(cardinality(candidates), 0) < p_room;
        if candidates is null then
            -- Nothing was claimed. Should a crash of the server undo this, its sender's connection is gone as well, and
            -- with it every delayed copy of the claim: no need to wait for the disk.
            perform set_config('synchronous_commit', 'off', true);
        end if;
    end if;
end $$;

-- How many claims these jobs could give at the most.
create or replace function {schema}.most_claims(p_jobs text[], p_wall bigint) returns bigint language sql as $$
    select (select count(*) from {schema}.planned where job_id = any(p_jobs) and due_at <= p_wall)
        + (select count(*) from {schema}.live where job_id = any(p_jobs) and state <> 'running')
        + (select count(*) from {schema}.later where job_id = any(p_jobs) and due_at <= p_wall)
$$;
