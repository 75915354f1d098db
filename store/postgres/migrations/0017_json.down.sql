drop function {prefix}publish(text, text, text, json, jsonb, text, text, text, text, text, text, text,
    timestamptz, interval, integer, bigint, timestamptz);
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
language sql volatile parallel unsafe set search_path = pg_catalog, pg_temp
as $function$
select {prefix}publish({prefixname}publish.topic, {prefixname}publish.key, {prefixname}publish.type,
    convert_to({prefixname}publish.payload, 'UTF8'),
    {prefixname}publish.headers, {prefixname}publish.id, {prefixname}publish.source, {prefixname}publish.subject,
    {prefixname}publish.tenant, {prefixname}publish.correlation_id, {prefixname}publish.causation_id,
    {prefixname}publish.content_type, {prefixname}publish.deliver_at, {prefixname}publish.deliver_after,
    {prefixname}publish.schema_version, {prefixname}publish.aggregate_version, {prefixname}publish.message_time)
$function$;
