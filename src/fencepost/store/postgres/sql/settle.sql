-- Updates of runs. What a run reports concerns nothing but the run. Its end changes nothing for its job, but for the
-- record of its last run, if the job is plain, nothing else of it is live, and it is next looked at when its first planned fire falls due, as it would be
-- afterwards, too. (A late one of a calendar that is behind would not be looked at: it waits for the planner.)
--
-- The answers are places in the arrays. A report that is not among them is refused; a settle needs a careful step.

create function {schema}.settle(
    p_replica text,
    p_jobs text[], p_dues bigint[], p_tokens bigint[], p_states text[], p_reasons text[], p_errors text[],
    p_outputs text[], p_lines text[],
    r_jobs text[], r_dues bigint[], r_names text[], r_tokens bigint[], r_progress text[], r_checkpoints text[],
    r_saves bigint[], r_outputs text[],
    p_wall bigint,
    out settled bigint[], out reported bigint[], out steps bigint
) language plpgsql as $$
declare
    wall bigint;
begin
    perform {schema}.plainly();
    -- A share is enough: two runs of a job may end together, but no other step may be at work on it.
    perform 1 from {schema}.jobs j where j.id = any(p_jobs) order by j.id for share;
    wall := coalesce(p_wall, {schema}.wall());

    if cardinality(r_jobs) > 0 then
        for place in 1..cardinality(r_jobs) loop
            update {schema}.live l
                set progress = coalesce(r_progress[place], l.progress),
                    checkpoint = case when r_saves[place] = 1 then r_checkpoints[place] else l.checkpoint end,
                    output = coalesce(r_outputs[place], l.output)
                where l.job_id = r_jobs[place] and l.name = r_names[place]
                    and (l.due_at = r_dues[place] or l.name <> '')
                    and l.token = r_tokens[place] and l.state = 'running';
            if found then reported := reported || place::bigint; end if;
        end loop;
    end if;

    with ready as materialized (
        select w.place, w.state as new_state, w.reason as new_reason, w.error as new_error,
                coalesce(w.output, l.output) as new_output, w.line, l.*
            from unnest(p_jobs, p_dues, p_tokens, p_states, p_reasons, p_errors, p_outputs, p_lines)
                with ordinality as w (job_id, due_at, token, state, reason, error, output, line, place)
            cross join lateral (
                select live.*, live.ctid as at from {schema}.live
                    where live.job_id = w.job_id and live.due_at = w.due_at and live.name = '' limit 1 for update) l
            where l.token = w.token and l.state = 'running'
                and (select count(*) from {schema}.live other where other.job_id = w.job_id) = 1
                and (select wall >= j.plain_since
                        and j.look_at is not distinct from
                            (select p.due_at from {schema}.planned p where p.job_id = j.id order by p.due_at limit 1)
                        and ((j.look_at >= wall - j.misfire_after) is not false or
                            (select c.next_at > wall from {schema}.calendars c where c.job_id = j.id) is not false)
                    from {schema}.jobs j where j.id = w.job_id)),
    gone as (
        delete from {schema}.live where live.ctid = any(array(select ready.at from ready))),
    kept as (
        insert into {schema}.final (job_id, due_at, name, state, reason, refers_to, count, last_due_at, token, replica,
                claim_no, attempt, crashes, settled, started_at, finished_at, cancel_requested, error,
                progress, checkpoint, output, extra)
            select r.job_id, r.due_at, r.name, r.new_state, r.new_reason, r.refers_to, r.count, r.last_due_at, r.token,
                r.replica, r.claim_no, r.attempt, r.crashes, r.token, r.started_at, wall, r.cancel_requested,
                r.new_error, r.progress, r.checkpoint, r.new_output, r.extra
            from ready r),
    ran as (
        insert into {schema}.outcomes as o
            select r.job_id, r.due_at, r.name, r.new_state, r.started_at, wall, r.replica, r.new_reason, r.line,
                case r.new_state when 'succeeded' then wall end,
                case when r.new_state in ('failed', 'lost') then 1 else 0 end
            from ready r
            on conflict (job_id) do update
                set (due_at, name, state, started_at, finished_at, replica, reason, error_line, last_success_at,
                        failures_in_a_row)
                    = (excluded.due_at, excluded.name, excluded.state, excluded.started_at, excluded.finished_at,
                        excluded.replica, excluded.reason, excluded.error_line,
                        coalesce(excluded.last_success_at, o.last_success_at),
                        case when excluded.last_success_at is null then o.failures_in_a_row + excluded.failures_in_a_row
                            else 0 end))
    select array_agg(ready.place) into settled from ready;

    -- While it is doubtful whether writes were lost only heartbeats count, as in `rules/updates.py`.
    if settled is not null or reported is not null then
        update {schema}.replicas r set steps = r.steps + 1
            where r.id = p_replica and (select l.standing = 'settled' from {schema}.lease l) returning r.steps into steps;
    end if;
    if steps is null then
        select r.steps into steps from {schema}.replicas r where r.id = p_replica;
    end if;
end $$;
