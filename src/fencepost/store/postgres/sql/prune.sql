-- Forget some of the fires that ended before; how many there were.
create function {schema}.prune(p_keep double precision, p_most bigint, p_wall bigint) returns bigint
language plpgsql as $$
declare
    wall bigint;
    gone bigint;
begin
    perform {schema}.plainly();
    wall := coalesce(p_wall, {schema}.wall());
    delete from {schema}.final where ctid = any(array(
        select f.ctid from {schema}.final f where f.finished_at < wall - (p_keep * 1000000)::bigint limit p_most));
    get diagnostics gone = row_count;
    return gone;
end $$;
