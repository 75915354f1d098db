-- locks: relays
-- The filters of topics that processes of a relay have registered. A relay's generations count from 1.
create table {prefix}relay_filters (
    relay         text not null,
    generation    integer not null,
    topics        text not null, -- JSON array of patterns
    registered_at timestamptz not null default clock_timestamp(), -- last
    primary key (relay, generation)
);
alter table {prefix}relays add column generation integer not null default 0; -- of its filter; 0: none, or it has left

-- Messages that were skipped because no relay takes their topic.
create table {prefix}unrouted (
    relay     text not null,
    topic     text not null, -- '': of more topics than are named
    partition smallint not null,
    count     bigint not null,
    first_at  timestamptz not null,
    last_at   timestamptz not null,
    primary key (relay, topic, partition)
) with (fillfactor = 50);
