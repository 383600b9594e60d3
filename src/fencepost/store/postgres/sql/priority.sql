-- Of what is due, jobs with a higher priority come first. Nearly all have the priority 0.
alter table {schema}.jobs add column priority smallint not null default 0;
