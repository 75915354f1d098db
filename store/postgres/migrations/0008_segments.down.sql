-- locks: log
-- The log is partitioned by created_at again. All that is there goes into the default segment.
-- It rewrites the log in one transaction: nobody can publish or fetch meanwhile.
alter table {prefix}log rename to {prefixname}log_before;
alter sequence {prefix}log_seq_seq rename to {prefixname}log_before_seq_seq;
alter index {prefix}log_fresh rename to {prefixname}log_before_fresh;
alter index {prefix}log_late rename to {prefixname}log_before_late;

-- xid stands before seq because defaults are evaluated in the order of the columns: a row's transaction has its
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
create table {prefix}log_default partition of {prefix}log default;
insert into {prefix}log (xid, seq, partition, id, topic, key, type, source, subject, tenant, message_time, schema_version,
    aggregate_version, content_type, headers, correlation_id, causation_id, payload, available_at, created_at)
    overriding system value
select xid, seq, partition, id, topic, key, type, source, subject, tenant, message_time, schema_version,
    aggregate_version, content_type, headers, correlation_id, causation_id, payload, available_at, created_at
from {prefix}log_before;
-- Not a plain select: JDBC would keep its cursor open on the sequence, which is dropped below.
do $$ begin perform setval('{prefix}log_seq_seq', last_value, is_called) from {prefix}log_before_seq_seq; end $$;
create index {prefixname}log_fresh on {prefix}log (partition, seq);
create index {prefixname}log_late on {prefix}log (xid, seq);

-- The owner and the rights of the table and its sequence are as they were.
do $$
declare
    pair record;
    acl  record;
begin
    for pair in values ('{prefix}log_before'::regclass, '{prefix}log'::regclass, 'table'),
        ('{prefix}log_before_seq_seq', '{prefix}log_seq_seq', 'sequence')
    loop
        for acl in select a.grantee, a.privilege_type, a.is_grantable from pg_class c, aclexplode(c.relacl) a
            where c.oid = pair.column1 and a.grantee <> c.relowner
        loop
            execute format('grant %s on %s %s to %s', acl.privilege_type, pair.column3, pair.column2,
                case when acl.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(acl.grantee)) end
                || case when acl.is_grantable then ' with grant option' else '' end);
        end loop;
    end loop;
    for acl in select t.oid::regclass as part, pg_get_userbyid(before.relowner) as owner
        from pg_class before, pg_partition_tree('{prefix}log') as p join pg_class t on t.oid = p.relid
        where before.oid = '{prefix}log_before'::regclass and t.relowner <> before.relowner
    loop
        execute format('alter table %s owner to %I', acl.part, acl.owner);
    end loop;
end
$$;
drop table {prefix}log_before;

drop function {prefix}log_advance(bigint, bigint);
