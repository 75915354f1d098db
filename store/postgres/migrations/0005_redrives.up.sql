-- locks: dead
-- What was missing to repair dead letters.
alter table {prefix}dead
    add column fingerprint text not null default '', -- of the cause; '' until somebody asks for it: the program computes it
    add column redrive bigint not null default 0, -- the one that sent it back; 0: none
    add column edits integer not null default 0;
-- Those whose fingerprint is to be computed.
create index {prefixname}dead_unmarked on {prefix}dead (number) where fingerprint = '' and cause <> '';
create index {prefixname}dead_fingerprint on {prefix}dead (fingerprint) where state = 'open';
-- What a redrive has sent back.
create index {prefixname}dead_redrive on {prefix}dead (redrive) where redrive > 0;
-- What became of a message, by its ID; and whether a letter was imported before.
create index {prefixname}dead_id on {prefix}dead (id);

-- What letters were before they were edited.
create table {prefix}dead_edits (
    number    bigint not null,
    n         integer not null, -- from 1
    edited_at timestamptz not null default clock_timestamp(),
    edited_by text not null,
    why       text not null,
    headers   jsonb not null,
    payload   bytea not null,
    primary key (number, n)
);

create table {prefix}redrives (
    id           bigint generated always as identity primary key,
    filter       jsonb not null,
    rate         float8 not null, -- letters per second; 0: no bound
    state        text not null default 'running' check (state in ('running', 'finished', 'cancelled')),
    started_by   text not null,
    started_at   timestamptz not null default clock_timestamp(),
    ended_at     timestamptz,
    cancelled_by text not null default '',
    selected     bigint not null,
    done         bigint not null default 0,
    refused      bigint not null default 0,
    skipped      bigint not null default 0,
    position     bigint not null default 0, -- the letter that it came to last
    up_to        bigint not null,           -- the last letter that concerns it
    next_at      timestamptz                -- its rate lets it go on from then
) with (fillfactor = 50);
create index {prefixname}redrives_running on {prefix}redrives (id) where state = 'running';
