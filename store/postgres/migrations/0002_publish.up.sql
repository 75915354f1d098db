-- {prefix}publish writes one message in the caller's transaction and returns its id. docs/sql-contract.md describes it.
create function {prefix}publish(
    topic             text,
    key               text,
    type              text,
    payload           bytea,
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
language plpgsql volatile parallel unsafe
as $function$
#variable_conflict use_column
declare
    m           record;
    field       record;
    faults      text[] := '{}';
    entries     bigint;
    bytes       bigint;
    unfit       bigint;
    message_id  text := coalesce({prefixname}publish.id, encode(
        -- UUIDv7: 48 bits of milliseconds, then random bits under the version and the variant.
        set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
            placing substring(int8send(floor(extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
            from 1 for 6), 52, 1), 53, 1), 'hex')::uuid::text);
    stream      text := coalesce(nullif({prefixname}publish.topic, ''), {prefixname}publish.type);
begin
    for field in
        select f.name, coalesce(f.value, '') as value, f.least, f.most
        from (values ('id', message_id, 1, 64), ('type', {prefixname}publish.type, 1, 128), ('source', {prefixname}publish.source, 1, 256),
            ('topic', stream, 1, 249), ('key', {prefixname}publish.key, 0, 256), ('subject', {prefixname}publish.subject, 0, 256),
            ('tenant', {prefixname}publish.tenant, 0, 64), ('content_type', {prefixname}publish.content_type, 1, 128),
            ('correlation_id', {prefixname}publish.correlation_id, 0, 128), ('causation_id', {prefixname}publish.causation_id, 0, 128)
        ) as f (name, value, least, most)
        where octet_length(coalesce(f.value, '')) not between f.least and f.most
    loop
        faults := faults || case when field.value = '' then field.name || ' is required'
            else format('%s is %s bytes long, the limit is %s', field.name, octet_length(field.value), field.most) end;
    end loop;
    if strpos({prefixname}publish.content_type, '/') = 0 then
        faults := faults || 'content_type is not a media type such as application/json'::text;
    end if;
    if {prefixname}publish.source ~ '[^]A-Za-z0-9._~:/?#[@!$&''()*+,;=%-]' then
        faults := faults || 'source is not a URI-reference (RFC 3986)'::text;
    end if;
    if {prefixname}publish.payload is null then
        faults := faults || 'payload is null'::text;
    elsif octet_length({prefixname}publish.payload) > 1048576 then
        faults := faults || format('payload is %s bytes long, the limit is 1048576', octet_length({prefixname}publish.payload));
    end if;
    if jsonb_typeof({prefixname}publish.headers) is distinct from 'object' then
        faults := faults || 'headers is not a JSON object'::text;
    elsif {prefixname}publish.headers <> '{}' then
        select count(*), sum(octet_length(h.key) + octet_length(h.value #>> '{}')),
            count(*) filter (where h.key = '' or jsonb_typeof(h.value) <> 'string')
        into entries, bytes, unfit from jsonb_each({prefixname}publish.headers) as h (key, value);
        if unfit > 0 then
            faults := faults || format('headers has %s entries with an empty name or a value that is not a string', unfit);
        end if;
        if entries > 64 then
            faults := faults || format('headers has %s entries, the limit is 64', entries);
        end if;
        if bytes > 16384 then
            faults := faults || format('headers has %s bytes of names and values, the limit is 16384', bytes);
        end if;
    end if;
    if {prefixname}publish.schema_version < 0 then
        faults := faults || format('schema_version is %s, it counts from 1', {prefixname}publish.schema_version);
    end if;
    if {prefixname}publish.aggregate_version < 0 then
        faults := faults || format('aggregate_version is %s, it counts from 1', {prefixname}publish.aggregate_version);
    end if;
    if {prefixname}publish.deliver_at is not null and {prefixname}publish.deliver_after is not null then
        faults := faults || 'deliver_at and deliver_after are both set: give at most one of them'::text;
    end if;
    if {prefixname}publish.deliver_after <= interval '0' then
        faults := faults || format('deliver_after is %s, it must be positive', {prefixname}publish.deliver_after);
    end if;
    if extract(year from {prefixname}publish.deliver_at at time zone 'UTC') not between 1 and 9999 then
        faults := faults || 'deliver_at must lie in the years 1 to 9999'::text;
    end if;
    if extract(year from {prefixname}publish.message_time at time zone 'UTC') not between 1 and 9999 then
        faults := faults || 'message_time must lie in the years 1 to 9999'::text;
    end if;
    if cardinality(faults) > 0 then
        raise exception using errcode = 'invalid_parameter_value',
            message = 'message: ' || array_to_string(faults, E'\nmessage: ');
    end if;

    insert into {prefix}log (partition, id, topic, key, type, source, subject, tenant, message_time, schema_version,
        aggregate_version, content_type, headers, correlation_id, causation_id, payload, available_at)
    values (
        -- The first four bytes of the MD5 sum, big-endian, modulo the number of partitions, as postrider.PartitionOf.
        ('x' || substr(md5(convert_to(coalesce(nullif({prefixname}publish.key, ''), message_id), 'UTF8')), 1, 8))::bit(32)::bigint
            % {prefix}partitions(),
        message_id, stream, coalesce({prefixname}publish.key, ''), {prefixname}publish.type, {prefixname}publish.source, coalesce({prefixname}publish.subject, ''),
        coalesce({prefixname}publish.tenant, ''), coalesce({prefixname}publish.message_time, clock_timestamp()),
        coalesce({prefixname}publish.schema_version, 0), coalesce({prefixname}publish.aggregate_version, 0), {prefixname}publish.content_type,
        {prefixname}publish.headers, coalesce({prefixname}publish.correlation_id, ''), coalesce({prefixname}publish.causation_id, ''), {prefixname}publish.payload,
        coalesce({prefixname}publish.deliver_at, clock_timestamp() + {prefixname}publish.deliver_after));
    return message_id;
end
$function$;

-- The same with a payload of type text.
create function {prefix}publish(
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
language sql volatile parallel unsafe
as $function$
select {prefix}publish({prefixname}publish.topic, {prefixname}publish.key, {prefixname}publish.type,
    convert_to({prefixname}publish.payload, 'UTF8'),
    {prefixname}publish.headers, {prefixname}publish.id, {prefixname}publish.source, {prefixname}publish.subject,
    {prefixname}publish.tenant, {prefixname}publish.correlation_id, {prefixname}publish.causation_id,
    {prefixname}publish.content_type, {prefixname}publish.deliver_at, {prefixname}publish.deliver_after,
    {prefixname}publish.schema_version, {prefixname}publish.aggregate_version, {prefixname}publish.message_time)
$function$;

-- The same with a payload of type jsonb.
create function {prefix}publish(
    topic             text,
    key               text,
    type              text,
    payload           jsonb,
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
language sql volatile parallel unsafe
as $function$
select {prefix}publish({prefixname}publish.topic, {prefixname}publish.key, {prefixname}publish.type,
    convert_to({prefixname}publish.payload::text, 'UTF8'),
    {prefixname}publish.headers, {prefixname}publish.id, {prefixname}publish.source, {prefixname}publish.subject,
    {prefixname}publish.tenant, {prefixname}publish.correlation_id, {prefixname}publish.causation_id,
    {prefixname}publish.content_type, {prefixname}publish.deliver_at, {prefixname}publish.deliver_after,
    {prefixname}publish.schema_version, {prefixname}publish.aggregate_version, {prefixname}publish.message_time)
$function$;
