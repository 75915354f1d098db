-- oldest program: 7
-- oldest publisher: 6
-- locks: cursors, leases, parked, relays, meta
-- Where a relay or consumer has begun: one row for each of its partitions, for as long as it is known.
create table {prefix}relay_partitions (
    relay     text not null,
    partition smallint not null,
    primary key (relay, partition)
);
insert into {prefix}relay_partitions (relay, partition) select relay, partition from {prefix}leases;

-- The right to work on a partition, under a token that its owner made. Unlogged: it ends with the incarnation that granted
-- it, since recovery from a crash empties the table, and a standby that is promoted never had it. Where a server keeps unlogged
-- tables, or the rows come from a copy, the incarnation in the row says so. Rows change when a lease is granted or
-- released; a heartbeat changes the owner's row in relays. They are what a settlement locks.
drop table {prefix}leases;
create unlogged table {prefix}leases (
    relay       text not null,
    partition   smallint not null,
    owner       text not null default '',
    token       text not null default '',
    incarnation text not null default '',
    primary key (relay, partition)
) with (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);

-- The incarnation of the server and of this table: when the server was started, when it last recovered from a crash (before
-- PostgreSQL 15 that is not known; there the unlogged table says it alone), and the table's identity, which is another one
-- where a dump was restored.
create function {prefix}incarnation() returns text language sql stable parallel safe as $$
select (extract(epoch from pg_postmaster_start_time()) * 1000000)::int8::text || '/' || coalesce((extract(epoch from
    case when current_setting('server_version_num')::int4 >= 150000 then pg_stat_get_bgwriter_stat_reset_time() end)
    * 1000000)::int8::text, '') || '/' || '{prefix}leases'::regclass::oid::text
$$;

-- When this incarnation was first used, and whether another server had the outbox before.
create unlogged table {prefix}incarnations (
    incarnation text primary key,
    began_at    timestamptz not null default clock_timestamp(),
    failover    boolean not null
);

alter table {prefix}meta
    add column timeline    text not null default '', -- of the server that was used last; '' if it is not known
    add column timeline_at timestamptz;              -- when it was last found to be another one
alter table {prefix}relays
    add column ttl    interval not null default '15 seconds', -- how long its leases last without a heartbeat
    add column member boolean not null default true;          -- it has sent heartbeats, and counts for the shares of others

-- The content of settlement n, to tell a repetition from something else.
alter table {prefix}cursors add column content bytea;

-- A message's parked rows, by its ID.
create index {prefixname}parked_id on {prefix}parked (id);

-- What operators have decided about held keys.
create table {prefix}decisions (
    id          text primary key,
    relay       text not null,
    partition   smallint not null,
    key         text not null,
    verb        text not null check (verb in ('retry', 'skip', 'dead', 'dead-all')),
    message_id  text not null default '',
    decided_by  text not null,
    reason      text not null default '',
    state       text not null default 'open' check (state in ('open', 'applied', 'refused')),
    outcome     text not null default '',
    count       integer not null default 0,
    recorded_at timestamptz not null default clock_timestamp(),
    done_at     timestamptz
);
-- Those to be applied, oldest first.
create index {prefixname}decisions_open on {prefix}decisions (relay, recorded_at) where state = 'open';
