-- Fires by hand that lay ahead when they were added, until they are claimed or closed. There may be a million of them:
-- apart from the others, so that who asks for what is live does not meet them.
create table {schema}.later (like {schema}.live including defaults, primary key (job_id, name));
create index on {schema}.later (job_id, due_at);
create index on {schema}.later (due_at);
