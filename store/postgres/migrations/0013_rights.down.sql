drop function {prefix}log_drop(bigint);
drop function {prefix}log_detach(bigint);
drop function {prefix}log_attach(bigint, bigint);
create or replace function {prefix}incarnation() returns text language sql stable parallel safe as $$
select (extract(epoch from pg_postmaster_start_time()) * 1000000)::int8::text || '/' || coalesce((extract(epoch from
    case when current_setting('server_version_num')::int4 >= 150000 then pg_stat_get_bgwriter_stat_reset_time() end)
    * 1000000)::int8::text, '') || '/' || '{prefix}leases'::regclass::oid::text
$$;
alter function {prefix}log_advance(bigint, bigint) reset search_path;
alter function {prefix}publish(text, text, text, jsonb, jsonb, text, text, text, text, text, text, text,
    timestamptz, interval, integer, bigint, timestamptz) reset search_path;
alter function {prefix}publish(text, text, text, text, jsonb, text, text, text, text, text, text, text,
    timestamptz, interval, integer, bigint, timestamptz) reset search_path;
alter function {prefix}publish(text, text, text, bytea, jsonb, text, text, text, text, text, text, text,
    timestamptz, interval, integer, bigint, timestamptz) reset search_path;
