-- From schema 1: bodies that go on although their runs have ended.
alter table {schema}.replicas add column if not exists lingering text not null default '';

-- What the ledger knows of each job's last run.
insert into {schema}.outcomes
    select j.id, run.due_at, run.name, run.state, run.started_at, run.finished_at, run.replica, run.reason, null,
        success.finished_at,
        (select count(*) from {schema}.final f where f.job_id = j.id and f.state in ('failed', 'lost')
            and f.due_at > coalesce(success.due_at, -1))
    from {schema}.jobs j
    cross join lateral (select * from {schema}.final f where f.job_id = j.id and f.attempt > 0
        and f.replica is not null and f.started_at is not null order by f.due_at desc limit 1) run
    left join lateral (select f.finished_at, f.due_at from {schema}.final f where f.job_id = j.id
        and f.state = 'succeeded' order by f.due_at desc limit 1) success on true;
