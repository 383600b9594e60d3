-- How the last run of each job ended. Apart from the job's own row, of which a settle needs no more than a share.
create table {schema}.outcomes (
    job_id text collate "C" primary key,
    due_at bigint not null,
    name text collate "C" not null,
    state text not null,
    started_at bigint not null,
    finished_at bigint not null,
    replica text collate "C" not null,
    reason text,
    error_line text,
    last_success_at bigint,
    failures_in_a_row bigint not null
) with (fillfactor = 70);

-- For pictures of one job: what did not succeed, however often it fires.
create index on {schema}.final (job_id, due_at) where state <> 'succeeded';
