-- What became of attempts whose answers are worth keeping, such as those of webhooks.
create table {prefix}attempts (
    message_id     text not null,
    relay          text not null,
    at             timestamptz not null, -- the sender's clock
    attempt        integer not null,
    took           bigint not null, -- microseconds
    outcome        text not null,
    status         integer not null, -- 0: no answer
    answer         bytea not null, -- its beginning
    error          text not null,
    request_sha256 bytea not null,
    expires_at     timestamptz not null,
    primary key (message_id, relay, at, attempt)
) with (autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0.05);
-- Those whose time is over.
create index {prefixname}attempts_expiry on {prefix}attempts (expires_at);
