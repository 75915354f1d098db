-- Functions and operators that match calls better than PostgreSQL's own, each of which fails when it is called.
do $plant$
declare
    types   constant text[] := '{text,varchar,name,"\"char\"",bool,int2,int4,int8,numeric,float8,oid,regclass,xid,xid8,bytea,jsonb,timestamptz,interval,'
        'text[],int2[],int8[]}';
    -- Those whose parameters are polymorphic or could be converted to.
    names   constant text[] := array(select distinct proname::text from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
        where n.nspname = 'pg_catalog' and p.prokind in ('f', 'a', 'w') and proname = any(array['age', 'array_agg', 'array_to_string', 'cardinality', 'convert_to',
        'count', 'current_setting', 'encode', 'format', 'generate_series', 'hashtextextended', 'jsonb_agg', 'jsonb_array_elements',
        'jsonb_array_length', 'jsonb_build_array', 'jsonb_build_object', 'jsonb_each', 'jsonb_typeof', 'left', 'max', 'md5', 'min',
        'nextval', 'octet_length', 'pg_advisory_xact_lock', 'pg_current_xact_id_if_assigned', 'pg_get_expr', 'pg_notify', 'pg_relation_size',
        'pg_snapshot_xip', 'pg_snapshot_xmax', 'pg_snapshot_xmin', 'pg_terminate_backend', 'pg_total_relation_size', 'pg_visible_in_snapshot',
        'pg_walfile_name', 'regexp_match', 'set_bit', 'set_config', 'setval', 'strpos', 'substr', 'sum', 'to_jsonb', 'to_regclass',
        'unnest', 'upper', 'uuid_send']));
    body    constant text := $body$ language plpgsql as 'begin raise exception ''a planted function was called'' using errcode = ''HV000''; end'$body$;
    f       text;
    l       text;
    r       text;
    o       text;
begin
    perform pg_catalog.set_config('search_path', 'pg_catalog', true);
    foreach f in array names loop
        foreach l in array types loop
            if not exists (select from pg_catalog.pg_proc where proname = f and proargtypes::text = l::regtype::oid::text) then
                execute format('create function public.%I(%s) returns %s', f, l, case when f = 'unnest' then 'setof text' else 'int4' end) || body;
            end if;
            foreach r in array '{text,int4}'::text[] loop
                if not exists (select from pg_catalog.pg_proc where proname = f and proargtypes::text = l::regtype::oid || ' ' || r::regtype::oid) then
                    execute format('create function public.%I(%s, %s) returns int4', f, l, r) || body;
                end if;
            end loop;
        end loop;
        execute format('create function public.%I(text, text, text) returns int4', f) || body;
        execute format('create function public.%I(text, variadic text[]) returns int4', f) || body;
    end loop;
    foreach l in array types loop
        foreach r in array types loop
            execute format('create function public.planted(%s, %s) returns boolean', l, r) || body;
            execute format('create function public.planted_text(%s, %s) returns text', l, r) || body;
            foreach o in array '{=,<>,<,<=,>,>=,+,-,*,%,||,->,->>,#>>,~}'::text[] loop
                if not exists (select from pg_catalog.pg_operator where oprname = o and oprleft = l::regtype and oprright = r::regtype) then
                    execute format('create operator public.%s (leftarg = %s, rightarg = %s, function = public.%s)', o, l, r,
                        case when o in ('=', '<>', '<', '<=', '>', '>=', '~') then 'planted' else 'planted_text' end);
                end if;
            end loop;
        end loop;
    end loop;
end
$plant$
