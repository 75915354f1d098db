-- What consumers remember. What they put aside stands in parked, held and dead, under the consumer's name.

-- The sequences of messages that consumers put aside. They are drawn one by one while the key is locked, so that within a
-- key they rise in the order of parking; hence no cache.
create sequence {prefix}aside_seq cache 1;

-- What has been consumed, one row for each message.
create table {prefix}claims (
    consumer   text not null,
    id         text not null, -- of the message
    claimed_at timestamptz not null default statement_timestamp(),
    primary key (consumer, id)
) with (autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0.05);
-- The oldest of a consumer, for those that are past retention.
create index {prefixname}claims_age on {prefix}claims (consumer, claimed_at);

-- How far a source was consumed. This row is what a transaction locks, and it never changes.
create table {prefix}watermarks (
    consumer  text not null,
    partition text not null, -- of the source
    epoch     text not null, -- of the source's log
    primary key (consumer, partition, epoch)
);

-- Where a watermark is. A move inserts row n+1 and deletes row n instead of updating, as in the cursors: the newest row is
-- the first of its key read backwards, however many old ones an open transaction keeps from being vacuumed.
create table {prefix}watermark_moves (
    consumer  text not null,
    partition text not null,
    epoch     text not null,
    n         bigint not null,
    position  bigint not null, -- consumed: everything up to this offset
    moved_at  timestamptz not null default clock_timestamp(),
    primary key (consumer, partition, epoch, n)
) with (autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0,
        autovacuum_analyze_threshold = 100000);

-- The aggregate version that was applied last, 0 before the first.
create table {prefix}versions (
    consumer text not null,
    key      text not null,
    version  bigint not null default 0,
    primary key (consumer, key)
) with (fillfactor = 80);

-- Effects outside the database: who is bringing them about, and which are done.
create table {prefix}effects (
    guard       text not null,
    id          text not null,
    token       text not null, -- of the attempt
    lease_until timestamptz not null,
    done_at     timestamptz, -- null: not done
    primary key (guard, id)
) with (fillfactor = 80);
-- Those done longest ago.
create index {prefixname}effects_age on {prefix}effects (guard, done_at) where done_at is not null;
