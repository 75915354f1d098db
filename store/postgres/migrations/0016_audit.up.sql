-- oldest program: 10
-- oldest publisher: 6
-- What grants access to the administration, and what operators did. Rights to these tables are granted apart from all others.
create table {prefix}auth (
    kind       text not null,
    id         text collate "C" not null,
    rev        bigint not null default 1, -- rises with each change
    at         timestamptz not null default clock_timestamp(), -- of the last change
    expires_at timestamptz, -- null: never
    body       bytea not null,
    primary key (kind, id)
);
create table {prefix}audit (
    kind       text not null,
    id         text collate "C" not null,
    rev        bigint not null default 1,
    at         timestamptz not null default clock_timestamp(),
    expires_at timestamptz,
    body       bytea not null,
    primary key (kind, id)
);
