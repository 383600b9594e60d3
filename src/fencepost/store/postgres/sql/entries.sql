-- Rules and outbox of notifications. Made whenever it is missing: replicas that do not know it have no use for it.
create table if not exists {schema}.entries (key text collate "C" primary key, entry text not null);
