-- A heartbeat that only renews: the replica is known, its tasks are as before, it does not leave, has seen nothing that
-- the store has lost, and leadership stays where it is. Everything else needs a careful step.

create function {schema}.beat(
    p_replica text, p_number bigint, p_ttl double precision, p_heartbeat double precision,
    p_campaign double precision, p_watched_term bigint, p_watched_renewals bigint, p_watched_seconds double precision,
    p_incarnation bigint, p_server text, p_term bigint, p_steps bigint,
    p_wall bigint, p_steady double precision,
    out plain boolean, out wall bigint, out steps bigint, out lease {schema}.lease,
    out job_ids text[], out dues bigint[], out names text[], out tokens bigint[], out claim_nos bigint[],
    out cancels boolean[]
) language plpgsql as $$
declare
    steady double precision;
begin
    perform {schema}.plainly();
    wall := coalesce(p_wall, {schema}.wall());
    steady := coalesce(p_steady, wall / 1e6);
    select * into lease from {schema}.lease l;
    plain := p_incarnation = lease.incarnation and p_server = lease.server and p_term <= lease.term
        and (p_campaign is null or lease.holder is not null)
        and (p_campaign is null or lease.holder = p_replica
            or (p_watched_term = lease.term and p_watched_renewals = lease.renewals
                and p_watched_seconds >= {observed} * least(lease.heartbeat, lease.ttl)) is not true);
    if not plain then return; end if;

    update {schema}.replicas r
        set expires = steady + p_ttl, ttl = p_ttl, heartbeat = p_heartbeat, renewals = r.renewals + 1,
            beat_no = p_number, steps = r.steps + 1
        where r.id = p_replica and r.beat_no < p_number and not r.draining and r.steps >= p_steps
        returning r.steps into steps;
    plain := found;
    if not plain then return; end if;

    if p_campaign is not null and lease.holder = p_replica then
        -- Somebody may have taken leadership since it was read: only by a careful step, so not while this one lasts.
        update {schema}.lease l
            set renewals = l.renewals + 1, ttl = p_campaign, heartbeat = p_heartbeat, expires = steady + p_campaign
            returning l.* into lease;
    end if;

    select array_agg(f.job_id), array_agg(f.due_at), array_agg(f.name), array_agg(f.token), array_agg(f.claim_no),
            array_agg(f.cancel_requested)
        into job_ids, dues, names, tokens, claim_nos, cancels
        from (select * from {schema}.live l where l.replica = p_replica and l.state = 'running'
            order by l.due_at, l.job_id, l.name) f;
end $$;
