-- oldest program: 10
-- oldest publisher: 6
-- A payload of type text must be JSON if the content type says so, which it does by default.
create or replace function {prefix}publish(
    topic             text,
    key               text,
    type              text,
    payload           text,
    headers           jsonb default '{}',
    id                text default null,
    source            text default 'sql',
    subject           text default '',
    tenant            text default '',
    correlation_id    text default '',
    causation_id      text default '',
    content_type      text default 'application/json',
    deliver_at        timestamptz default null,
    deliver_after     interval default null,
    schema_version    integer default 0,
    aggregate_version bigint default 0,
    message_time      timestamptz default null
) returns text
language plpgsql volatile parallel unsafe set search_path = pg_catalog, pg_temp
as $function$
#variable_conflict use_column
declare
    fault text;
begin
    if {prefixname}publish.content_type ~* '^application/([^;]+[+])?json[ \t]*(;|$)' then
        begin
            perform {prefixname}publish.payload::json;
        exception when data_exception or statement_too_complex then
            fault := format('message: payload is not JSON, as content_type says (%s); if it is none, say what it is, as in '
                'content_type => ''text/plain''', sqlerrm);
        end;
    end if;
    if fault is null then
        return {prefix}publish({prefixname}publish.topic, {prefixname}publish.key, {prefixname}publish.type,
            convert_to({prefixname}publish.payload, 'UTF8'),
            {prefixname}publish.headers, {prefixname}publish.id, {prefixname}publish.source, {prefixname}publish.subject,
            {prefixname}publish.tenant, {prefixname}publish.correlation_id, {prefixname}publish.causation_id,
            {prefixname}publish.content_type, {prefixname}publish.deliver_at, {prefixname}publish.deliver_after,
            {prefixname}publish.schema_version, {prefixname}publish.aggregate_version, {prefixname}publish.message_time);
    end if;
    begin -- to name everything that is wrong; what this writes is undone
        perform {prefix}publish({prefixname}publish.topic, {prefixname}publish.key, {prefixname}publish.type,
            convert_to({prefixname}publish.payload, 'UTF8'),
            {prefixname}publish.headers, {prefixname}publish.id, {prefixname}publish.source, {prefixname}publish.subject,
            {prefixname}publish.tenant, {prefixname}publish.correlation_id, {prefixname}publish.causation_id,
            {prefixname}publish.content_type, {prefixname}publish.deliver_at, {prefixname}publish.deliver_after,
            {prefixname}publish.schema_version, {prefixname}publish.aggregate_version, {prefixname}publish.message_time);
    exception when invalid_parameter_value then
        fault := sqlerrm || E'\n' || fault;
    end;
    raise exception using errcode = 'invalid_parameter_value', message = fault;
end
$function$;

-- The same with a payload of type json.
create function {prefix}publish(
    topic             text,
    key               text,
    type              text,
    payload           json,
    headers           jsonb default '{}',
    id                text default null,
    source            text default 'sql',
    subject           text default '',
    tenant            text default '',
    correlation_id    text default '',
    causation_id      text default '',
    content_type      text default 'application/json',
    deliver_at        timestamptz default null,
    deliver_after     interval default null,
    schema_version    integer default 0,
    aggregate_version bigint default 0,
    message_time      timestamptz default null
) returns text
language sql volatile parallel unsafe set search_path = pg_catalog, pg_temp
as $function$
select {prefix}publish({prefixname}publish.topic, {prefixname}publish.key, {prefixname}publish.type,
    convert_to({prefixname}publish.payload::text, 'UTF8'),
    {prefixname}publish.headers, {prefixname}publish.id, {prefixname}publish.source, {prefixname}publish.subject,
    {prefixname}publish.tenant, {prefixname}publish.correlation_id, {prefixname}publish.causation_id,
    {prefixname}publish.content_type, {prefixname}publish.deliver_at, {prefixname}publish.deliver_after,
    {prefixname}publish.schema_version, {prefixname}publish.aggregate_version, {prefixname}publish.message_time)
$function$;
