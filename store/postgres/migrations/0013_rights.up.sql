-- oldest program: 10
-- oldest publisher: 6
-- What the functions call does not depend on the search_path of their caller, in which others may be able to create functions
-- (CVE-2018-1058).
alter function {prefix}publish(text, text, text, bytea, jsonb, text, text, text, text, text, text, text,
    timestamptz, interval, integer, bigint, timestamptz) set search_path = pg_catalog, pg_temp;
alter function {prefix}publish(text, text, text, text, jsonb, text, text, text, text, text, text, text,
    timestamptz, interval, integer, bigint, timestamptz) set search_path = pg_catalog, pg_temp;
alter function {prefix}publish(text, text, text, jsonb, jsonb, text, text, text, text, text, text, text,
    timestamptz, interval, integer, bigint, timestamptz) set search_path = pg_catalog, pg_temp;
alter function {prefix}log_advance(bigint, bigint) set search_path = pg_catalog, pg_temp;

-- Every statement of a relay calls this one. With a setting of its own it would not be inlined, so it names the schema.
create or replace function {prefix}incarnation() returns text language sql stable parallel safe as $$
select (extract(epoch from pg_catalog.pg_postmaster_start_time()) operator(pg_catalog.*) 1000000)::int8::text || '/' || coalesce((extract(epoch from
    case when pg_catalog.current_setting('server_version_num')::int4 >= 150000 then pg_catalog.pg_stat_get_bgwriter_stat_reset_time() end)
    operator(pg_catalog.*) 1000000)::int8::text, '') || '/' || '{prefix}leases'::regclass::oid::text
$$;

-- The segments of the log belong to the owner of these functions, which create and drop them for the roles that may call them.
-- Nobody else may, until it is granted.

-- {prefix}log_attach creates the segment for the numbers from first to before past, with the rights of the log.
create function {prefix}log_attach(first bigint, past bigint) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $function$
declare
    acl record;
begin
    execute format('create table {prefix}log_%s (like {prefix}log including defaults including constraints including indexes including storage)', first);
    for acl in select a.grantee, a.privilege_type from pg_class c, aclexplode(c.relacl) a
        where c.oid = '{prefix}log'::regclass and a.grantee <> c.relowner
    loop
        execute format('grant %s on {prefix}log_%s to %s', acl.privilege_type, first,
            case when acl.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(acl.grantee)) end);
    end loop;
    execute format('alter table {prefix}log attach partition {prefix}log_%s for values from (%1$s) to (%s)', first, past);
end
$function$;

-- {prefix}log_detach detaches the segment whose numbers begin with first, if it is empty. The log is locked first, as
-- publishers lock it: a publisher that was waited for may have added a row.
create function {prefix}log_detach(first bigint) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $function$
declare
    rows boolean;
begin
    lock table only {prefix}log in access exclusive mode;
    execute format('select exists (select from {prefix}log_%s)', first) into rows;
    if rows then
        raise exception 'not empty' using errcode = 'PR001';
    end if;
    execute format('alter table {prefix}log detach partition {prefix}log_%s', first);
end
$function$;

-- {prefix}log_drop drops a detached segment, if it is empty.
create function {prefix}log_drop(first bigint) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $function$
declare
    rows boolean;
begin
    execute format('lock table {prefix}log_%s in access exclusive mode', first);
    execute format('select exists (select from {prefix}log_%s)', first) into rows;
    if rows or exists (select from pg_inherits where inhrelid = format('{prefix}log_%s', first)::regclass) then
        raise exception 'not empty, or not detached' using errcode = 'PR001';
    end if;
    execute format('drop table {prefix}log_%s', first);
end
$function$;

revoke execute on function {prefix}log_attach(bigint, bigint), {prefix}log_detach(bigint), {prefix}log_drop(bigint) from public;
