-- oldest program: 8
-- oldest publisher: 6
-- locks: log
-- The log is partitioned by seq instead of created_at. Each segment takes {span} numbers, more than a table can
-- hold, and two empty ones are always ahead of the publishers: none ever waits for a segment to be made.
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
) partition by range (seq);

-- What is there goes into the first segment. Publishers begin there too, until maintenance sends them to the next one.
do $$
declare
    span   constant bigint := {span};
    last   bigint := (select last_value from {prefix}log_before_seq_seq);
    called boolean := (select is_called from {prefix}log_before_seq_seq);
    first  bigint;
    past   bigint;
begin
    last := greatest(last, (select max(seq) from {prefix}log_before));
    first := (last / span + 1) * span;
    past := first + 2 * span;
    execute format('create table {prefix}log_0 partition of {prefix}log for values from (0) to (%s)', first);
    while first < past loop
        execute format('create table {prefix}log_%s partition of {prefix}log for values from (%1$s) to (%s)', first, first + span);
        first := first + span;
    end loop;
    insert into {prefix}log (xid, seq, partition, id, topic, key, type, source, subject, tenant, message_time, schema_version,
        aggregate_version, content_type, headers, correlation_id, causation_id, payload, available_at, created_at)
        overriding system value
    select xid, seq, partition, id, topic, key, type, source, subject, tenant, message_time, schema_version,
        aggregate_version, content_type, headers, correlation_id, causation_id, payload, available_at, created_at
    from {prefix}log_before;
    perform setval('{prefix}log_seq_seq', last, called);
end
$$;

-- Fresh rows: those of a partition behind a position, in order. Unique, so that a sequence that was set back cannot assign a
-- number again. A log in which that has happened is renumbered: the later rows are new.
do $$
begin
    create unique index {prefixname}log_fresh on {prefix}log (partition, seq);
exception when unique_violation then
    update {prefix}log l set seq = default
    from (select tableoid as segment, ctid as place, row_number() over (partition by partition, seq order by created_at) as copy
        from {prefix}log) d
    where l.tableoid = d.segment and l.ctid = d.place and d.copy > 1;
    create unique index {prefixname}log_fresh on {prefix}log (partition, seq);
end
$$;
-- Late rows: those of the transactions that a snapshot did not see, in order; and what a transaction has written.
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

-- {prefix}log_advance sets the sequence of the log to a number that is next, if it lies ahead by more than margin, and says
-- whether it did. It is the only way to set it: the condition is checked when the function runs, however long the call took to
-- arrive, one caller after the other, and margin is more than publishers draw in between. So the sequence only ever rises. A
-- number that no segment takes is refused.
create function {prefix}log_advance(target bigint, margin bigint default 1048576) returns boolean
language plpgsql volatile parallel unsafe
as $function$
begin
    perform pg_advisory_xact_lock(hashtextextended('{prefix}log_advance', 2));
    if not exists (
        select 1 from pg_inherits i join pg_class c on c.oid = i.inhrelid,
            regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM [(]''([0-9]+)''[)] TO [(]''([0-9]+)''[)]') as bound
        where i.inhparent = '{prefix}log'::regclass and target >= bound[1]::bigint and target < bound[2]::bigint)
    then
        raise exception 'no segment of the log takes number %', target using errcode = 'check_violation';
    end if;
    perform setval('{prefix}log_seq_seq', target, false) from {prefix}log_seq_seq where last_value < target - margin;
    return found;
end
$function$;
