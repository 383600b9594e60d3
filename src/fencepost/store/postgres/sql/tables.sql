-- The tables of one namespace, in a schema of its own; {schema} stands for its name.
-- Instants are microseconds since 1970, exact and without a time zone. Texts compare by their bytes, as in Python.

create table {schema}.meta (name text primary key, value text not null);

-- A job is three rows, by how often they change. What is wide and rarely changes:
create table {schema}.definitions (
    job_id text collate "C" primary key,
    target text collate "C" not null,
    definition text not null,
    rest text not null
);
create index on {schema}.definitions (target);

-- what changes when its calendar is expanded: the oldest calendar that is not planned to its end;
create table {schema}.calendars (
    job_id text collate "C" primary key,
    version bigint,
    cursor bigint,
    until bigint,
    next_at bigint,
    plan_at bigint
);
create index on {schema}.calendars (plan_at, job_id) where plan_at is not null;

-- and what changes with every fire. This row is also the lock of all that belongs to the job.
create table {schema}.jobs (
    id text collate "C" primary key,
    target text collate "C" not null,
    leader_only boolean not null,
    misfire_after bigint not null,
    wants_latest boolean not null,
    skips_overlap boolean not null,
    plain_since bigint,            -- from then on nothing but the plain rules applies; null: never
    token bigint not null,
    decided_through bigint,
    tail bigint,                   -- by its due time
    look_at bigint
);

create table {schema}.events (
    number bigint generated always as identity primary key,
    job_id text collate "C" not null,
    at bigint not null,
    event text not null
);
create index on {schema}.events (job_id, number);

create table {schema}.targets (
    name text collate "C" primary key,
    unknown_since bigint,
    orphaned boolean not null default false,
    gaps text
);

-- A fire is in one of three tables, or in `later`. Scheduled ones that nobody has decided: inserted and deleted, never changed.
create table {schema}.planned (
    job_id text collate "C" not null,
    due_at bigint not null,
    count integer not null default 1,
    last_due_at bigint,
    primary key (job_id, due_at)
);
create index on {schema}.planned (due_at);

-- Those that run, wait to run again, wait for their turn, or were added by hand (they have a name).
create table {schema}.live (
    job_id text collate "C" not null,
    due_at bigint not null,
    name text collate "C" not null default '',
    state text not null,
    reason text,
    refers_to text,
    count integer not null default 1,
    last_due_at bigint,
    token bigint not null,
    replica text collate "C",
    claim_no bigint not null,
    attempt integer not null,
    crashes integer not null default 0,
    settled bigint not null default 0,
    not_before bigint,
    started_at bigint,
    finished_at bigint,
    cancel_requested boolean not null default false,
    error text,
    progress text,
    checkpoint text,
    output text,
    extra text,
    primary key (job_id, due_at, name)
);
create index on {schema}.live (replica) where state = 'running';

-- And those that have ended.
create table {schema}.final (like {schema}.live including defaults, primary key (job_id, due_at, name));
create index on {schema}.final (due_at);
create index on {schema}.final (due_at) where state <> 'succeeded';
create index on {schema}.final (last_due_at) where last_due_at is not null;
create index on {schema}.final (finished_at);
create unique index on {schema}.final (job_id, name) where name <> '';

create table {schema}.replicas (
    id text collate "C" primary key,
    host text not null,
    pid bigint not null,
    version text not null,
    joined_at bigint not null,
    ttl double precision not null,
    heartbeat double precision not null,
    expires double precision not null,
    renewals bigint not null,
    beat_no bigint not null,
    claim_no bigint not null,
    steps bigint not null,
    draining boolean not null,
    targets_no bigint not null,    -- changes with its targets: who has read them need not read them again
    lingering text not null default ''     -- keys, one per line
) with (fillfactor = 50);
create table {schema}.replica_targets (
    replica text collate "C" not null,
    target text collate "C" not null,
    primary key (replica, target)
);
create index on {schema}.replica_targets (target);

create table {schema}.lease (
    one boolean primary key default true check (one),
    holder text collate "C",
    term bigint not null default 0,
    renewals bigint not null default 0,
    ttl double precision not null default 0,
    heartbeat double precision not null default 0,
    expires double precision not null default 0,
    incarnation bigint not null default 0,
    standing text not null default 'settled',
    lost_through bigint,
    server text not null default ''
) with (fillfactor = 50);
insert into {schema}.lease default values;

-- Which session lock a replica holds as long as it is connected; of which start of the server.
create table {schema}.beacons (
    replica text collate "C" primary key,
    key bigint not null,
    server_start bigint not null
);

-- Every fire leaves dead rows behind in these. Cleaned late, they lie in the way of those who look for what is due.
alter table {schema}.jobs set (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
alter table {schema}.live set (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
alter table {schema}.planned set (
    autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
