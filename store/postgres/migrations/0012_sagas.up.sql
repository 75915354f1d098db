-- oldest program: 10
-- oldest publisher: 6
-- Instances of sagas, what participants remember, and documents that are rarely changed.

-- One row for each instance. No index contains a column that an ordinary transition changes, not even in its condition, so that
-- transitions are HOT updates. Instances that were started together change together, in one transaction: fillfactor leaves room for
-- a new version of every row of a page.
create table {prefix}sagas (
    run            text collate "C" primary key,
    id             text not null, -- the caller's
    engine         text not null,
    saga           text not null,
    version        integer not null,
    hash           text not null, -- of the definition
    kind           text not null check (kind in ('orchestrated', 'choreographed')),
    saga_key       text not null,
    holds_key      boolean not null, -- until it first ends
    parent_run     text not null, -- '': none
    parent_step    text not null,
    correlation_id text not null,
    tenant         text not null,
    token          text not null, -- replies echo it
    status         text not null check (status in ('running', 'compensating', 'stuck', 'completed', 'compensated', 'abandoned')),
    direction      text not null check (direction in ('forward', 'back')),
    paused         boolean not null,
    past_pivot     boolean not null,
    cause          text not null,
    detail         text not null,
    waiting        text not null, -- for what
    obligations    integer not null, -- open ones
    released       integer not null, -- obligations that an operator released
    deadline_us    bigint not null, -- since started_at, in microseconds; 0: none
    timer_us       bigint not null,
    timer_id       text not null,
    rev            bigint not null,
    state          bytea not null, -- the engine's
    data           bytea not null, -- the user's
    started_at     timestamptz not null,
    updated_at     timestamptz not null,
    stuck_at       timestamptz,
    ended_at       timestamptz,
    purge_from     timestamptz -- the end of an instance that may be purged and that no other one started
) with (fillfactor = 50, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0.02);
-- One instance for each ID.
create unique index {prefixname}sagas_id on {prefix}sagas (id);
-- One instance of a saga holds a key.
create unique index {prefixname}sagas_held on {prefix}sagas (saga, saga_key) where holds_key;
-- All instances of a key.
create index {prefixname}sagas_key on {prefix}sagas (saga_key, run) where saga_key <> '';
-- Those that have not ended, for lists and counts.
create index {prefixname}sagas_open on {prefix}sagas (run) where ended_at is null;
-- Those for which an operator has to decide.
create index {prefixname}sagas_stuck on {prefix}sagas (run) where stuck_at is not null;
-- Those of an engine that ended longest ago.
create index {prefixname}sagas_purge on {prefix}sagas (engine, purge_from) where purge_from is not null;
-- Those that an instance started.
create index {prefixname}sagas_children on {prefix}sagas (parent_run) where parent_run <> '';

-- One row for each transition, only ever inserted.
create table {prefix}saga_history (
    run        text collate "C" not null,
    rev        bigint not null,
    at         timestamptz not null,
    input      text not null,
    step       text not null,
    message_id text not null,
    actor      text not null,
    note       text not null,
    entries    text not null, -- JSON array, '': none
    patch      bytea not null, -- of data
    primary key (run, rev)
);

-- Other ways to find an instance.
create table {prefix}saga_aliases (
    saga  text not null,
    name  text not null,
    value text not null,
    run   text collate "C" not null,
    primary key (saga, name, value)
);
create index {prefixname}saga_aliases_run on {prefix}saga_aliases (run);

-- What instances can be searched by.
create table {prefix}saga_labels (
    run   text collate "C" not null,
    name  text not null,
    value text not null,
    primary key (run, name)
);
create index {prefixname}saga_labels_value on {prefix}saga_labels (name, value, run);

-- What participants did. State '': only the lock.
create table {prefix}saga_records (
    participant   text not null,
    run           text collate "C" not null,
    step          text collate "C" not null,
    state         text not null default '',
    command_type  text not null default '',
    command       bytea not null default '',
    reply_type    text not null default '',
    reply         bytea not null default '',
    first_sent_at timestamptz, -- of the command, by the clock of the engine's database
    saved_at      timestamptz not null default clock_timestamp(),
    closed        boolean not null default false, -- the engine will not ask about the run again
    purge_from    timestamptz, -- when it was saved, unless it must be kept
    primary key (participant, run, step)
) with (fillfactor = 80);
create index {prefixname}saga_records_purge on {prefix}saga_records (purge_from) where purge_from is not null;

-- Documents that are rarely changed, by kind; so far, stored definitions of sagas and the reports of processes that have them.
create table {prefix}records (
    kind       text not null,
    id         text not null,
    rev        bigint not null default 1, -- rises with each change
    at         timestamptz not null default clock_timestamp(), -- of the last change
    expires_at timestamptz, -- null: never
    body       bytea not null,
    primary key (kind, id)
);
