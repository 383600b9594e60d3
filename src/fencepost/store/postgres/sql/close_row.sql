-- Gives the closing as its row now says it; its place is how many fires were closed now.
create or replace function {schema}.close(p_closing {schema}.closing, p_wall bigint) returns {schema}.closing language plpgsql as $$
declare
    result {schema}.closing := p_closing;
begin
    result.place := p_closing.number;
    if p_closing.late then
        -- A backlog that grows while nobody has room is coalesced into ever newer fires. What overlaps a fire that was
        -- claimed just now cannot have a row yet.
        update {schema}.final f
            set count = f.count + p_closing.number, last_due_at = p_closing.last, finished_at = p_wall,
                refers_to = {schema}.fire_key(p_closing.job_id, p_closing.claimed)
            where f.job_id = p_closing.job_id and f.name = ''
                and f.due_at = (select j.tail from {schema}.jobs j where j.id = p_closing.job_id)
                and f.state = 'missed' and f.reason = 'coalesced'
                and coalesce(f.last_due_at, f.due_at) < p_closing.first
                and coalesce(f.last_due_at, f.due_at) =
                    (select j.decided_through from {schema}.jobs j where j.id = p_closing.job_id)
            returning f.due_at, f.count into result.first, result.number;
        if found then return result; end if;
        result.first := p_closing.first;   -- without a row both were set to null
        result.number := p_closing.number;
    end if;
    insert into {schema}.final (job_id, due_at, state, reason, refers_to, count, last_due_at, token, claim_no, attempt,
            finished_at)
        values (p_closing.job_id, p_closing.first,
            case when p_closing.late then 'missed' else 'skipped' end,
            case when p_closing.late then 'coalesced' else 'overlap' end,
            {schema}.fire_key(p_closing.job_id, p_closing.claimed), p_closing.number,
            case when p_closing.number > 1 then p_closing.last end, 0, 0, 0, p_wall);
    update {schema}.jobs j set tail = p_closing.first where j.id = p_closing.job_id;
    return result;
end $$;
