-- Say that there may be something to do: at once to those who listen, and to those who can only look (`hints`).
create sequence {schema}.hints;
create function {schema}.hint() returns void language plpgsql as $$
begin
    perform nextval('{schema}.hints'), pg_notify('{channel}', '');
end $$;

-- Which of these replicas have lost the session that held their beacon. One that has none, or whose beacon is from
-- before the server's last start, says nothing.
create function {schema}.gone(p_replicas text[], p_server_start bigint) returns text[] language plpgsql as $$
declare
    beacon record;
    found_gone text[] := array[]::text[];
begin
    for beacon in
        select b.replica, b.key from {schema}.beacons b
            where b.replica = any(p_replicas) and b.server_start = p_server_start
    loop
        if pg_try_advisory_lock_shared(beacon.key) then
            perform pg_advisory_unlock_shared(beacon.key);
            found_gone := found_gone || beacon.replica;
        end if;
    end loop;
    return found_gone;
end $$;
