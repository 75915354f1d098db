-- May see the status, where messages are, and dead letters, all without payloads and headers. It changes nothing.
grant usage on schema {schema} to {role};
grant select on {prefix}meta, {prefix}migrations, {prefix}relay_partitions, {prefix}leases, {prefix}incarnations, {prefix}decisions,
    {prefix}cursors, {prefix}relays, {prefix}relay_filters, {prefix}unrouted, {prefix}held, {prefix}redrives, {prefix}claims,
    {prefix}watermarks, {prefix}watermark_moves, {prefix}versions, {prefix}effects, {prefix}records to {role};
grant select on sequence {prefix}log_seq_seq to {role};
grant select (xid, seq, partition, id, topic, key, type, source, subject, tenant, message_time, schema_version, aggregate_version,
    content_type, correlation_id, causation_id, available_at, created_at) on {prefix}log to {role};
grant select (relay, partition, seq, id, topic, key, type, source, subject, tenant, message_time, schema_version, aggregate_version,
    content_type, correlation_id, causation_id, available_at, created_at, reason, due_at, attempts, history, redrives, parked_at)
    on {prefix}parked to {role};
grant select (number, relay, partition, seq, id, topic, key, type, source, subject, tenant, message_time, schema_version,
    aggregate_version, content_type, correlation_id, causation_id, available_at, created_at, reason, cause, attempts, history,
    died_at, redrives, state, resolved_at, resolved_by, resolution, fingerprint, redrive, edits) on {prefix}dead to {role};
