-- One row: what holds for the outbox as a whole.
create table {prefix}meta (
    one               boolean primary key default true check (one),
    partitions        smallint not null check (partitions between 1 and 1024),
    -- The cluster whose transaction ids the log and the cursors hold; null where the server does not tell.
    system_identifier bigint,
    -- When transaction ids were last found to be another cluster's, and which cluster's.
    restored_at       timestamptz,
    restored_from     bigint
);
insert into {prefix}meta (partitions) values ({partitions});
do $$
begin
    update {prefix}meta set system_identifier = (select system_identifier from pg_control_system());
exception when insufficient_privilege then
    null; -- the server does not tell
end
$$;

-- The same number of partitions as in {prefix}meta, for whoever writes messages. A row is read as it was when the transaction's
-- snapshot was taken, a function as it is when the statement has locked the log; and being inlined it costs nothing. It is
-- replaced while the log is locked, so that no message is written for a number that holds no more.
create function {prefix}partitions() returns integer language sql stable parallel safe as 'select {partitions}';

-- The log. xid stands before seq because defaults are evaluated in the order of the columns: a row's transaction has its
-- id before the row has its sequence, which is what bounds the search for late rows.
create table {prefix}log (
    xid               xid8 not null default pg_current_xact_id(),
    seq               bigint generated always as identity (cache 1),
    partition         smallint not null,
    id                text not null,
    topic             text not null,
    key               text not null default '',
    type              text not null,
    source            text not null default '',
    subject           text not null default '',
    tenant            text not null default '',
    message_time      timestamptz not null default clock_timestamp(),
    schema_version    integer not null default 0,
    aggregate_version bigint not null default 0,
    content_type      text not null default 'application/json',
    headers           jsonb not null default '{}',
    correlation_id    text not null default '',
    causation_id      text not null default '',
    payload           bytea not null default '',
    available_at      timestamptz,
    created_at        timestamptz not null default clock_timestamp()
) partition by range (created_at);

-- Fresh rows: those of a partition behind a position, in order.
create index {prefixname}log_fresh on {prefix}log (partition, seq);
-- Late rows: those of the transactions that a snapshot did not see, in order; and what a transaction has written.
create index {prefixname}log_late on {prefix}log (xid, seq);

-- Takes what no segment takes, so that an insert never fails for want of one.
create table {prefix}log_default partition of {prefix}log default;

-- The right to work on a partition. Its rows are what a settlement locks.
create table {prefix}leases (
    relay       text not null,
    partition   smallint not null,
    owner       text not null default '',
    epoch       bigint not null default 0,
    lease_until timestamptz,
    primary key (relay, partition)
) with (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);

-- How far a relay is. A settlement inserts row n+1 and deletes row n instead of updating: the newest row is the first of
-- its key read backwards, however many old ones an open transaction keeps from being vacuumed. An updated row would be
-- found only through all its versions.
create table {prefix}cursors (
    relay         text not null,
    partition     smallint not null,
    n             bigint not null,
    position      bigint not null,
    snapshot      pg_snapshot not null,
    -- Every row with seq <= position has an xid below; null: not known.
    ceiling       xid8,
    -- While late rows are read in pages: the snapshot that bounds them, and the sequence up to which they are delivered.
    page_snapshot pg_snapshot,
    page          bigint,
    delivered     bigint not null default 0,
    failed        bigint not null default 0,
    settled_at    timestamptz not null default clock_timestamp(),
    primary key (relay, partition, n)
) with (autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0,
        autovacuum_analyze_threshold = 100000);

-- The processes of a relay.
create table {prefix}relays (
    relay       text not null,
    owner       text not null,
    host        text not null,
    version     text not null,
    started_at  timestamptz not null,
    seen_at     timestamptz not null,
    alive_until timestamptz not null,
    primary key (relay, owner)
) with (fillfactor = 50);

-- Messages off the main line, each a copy of its row in the log.
create table {prefix}parked (
    relay             text not null,
    partition         smallint not null,
    seq               bigint not null,
    id                text not null,
    topic             text not null,
    key               text not null,
    type              text not null,
    source            text not null,
    subject           text not null,
    tenant            text not null,
    message_time      timestamptz not null,
    schema_version    integer not null,
    aggregate_version bigint not null,
    content_type      text not null,
    headers           jsonb not null,
    correlation_id    text not null,
    causation_id      text not null,
    payload           bytea not null,
    available_at      timestamptz,
    created_at        timestamptz not null,
    reason            text not null,
    due_at            timestamptz, -- null: it waits behind its key
    attempts          integer not null,
    history           jsonb not null default '[]',
    redrives          integer not null default 0,
    parked_at         timestamptz not null,
    primary key (relay, partition, seq)
) with (fillfactor = 80, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.05);
-- What is due, oldest first.
create index {prefixname}parked_due on {prefix}parked (relay, due_at) where due_at is not null;
-- What waits behind a held key, in order.
create index {prefixname}parked_waiting on {prefix}parked (relay, partition, key, seq) where due_at is null;

create table {prefix}held (
    relay           text not null,
    key             text not null,
    partition       smallint not null,
    seq             bigint not null,
    reason          text not null,
    cause           text not null,
    attempts        integer not null,
    since           timestamptz not null,
    next_attempt_at timestamptz, -- null: until an operator decides
    primary key (relay, key)
) with (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.05);
-- What is due, oldest first.
create index {prefixname}held_due on {prefix}held (relay, next_attempt_at) where next_attempt_at is not null;

-- Dead letters, each a copy of its message.
create table {prefix}dead (
    number            bigint generated always as identity primary key,
    relay             text not null,
    partition         smallint not null,
    seq               bigint not null,
    id                text not null,
    topic             text not null,
    key               text not null,
    type              text not null,
    source            text not null,
    subject           text not null,
    tenant            text not null,
    message_time      timestamptz not null,
    schema_version    integer not null,
    aggregate_version bigint not null,
    content_type      text not null,
    headers           jsonb not null,
    correlation_id    text not null,
    causation_id      text not null,
    payload           bytea not null,
    available_at      timestamptz,
    created_at        timestamptz not null,
    reason            text not null,
    cause             text not null,
    attempts          integer not null,
    history           jsonb not null,
    died_at           timestamptz not null,
    redrives          integer not null,
    state             text not null default 'open' check (state in ('open', 'redriven', 'discarded')),
    resolved_at       timestamptz,
    resolved_by       text not null default '',
    resolution        text not null default ''
);
-- The open ones, oldest first.
create index {prefixname}dead_open on {prefix}dead (relay, number) where state = 'open';
-- The letters of one message of a relay, and of what lies behind a position of a partition.
create index {prefixname}dead_seq on {prefix}dead (relay, partition, seq);
