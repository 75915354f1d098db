-- May see the status, where messages are, and dead letters, all without payloads and headers. It changes nothing.
GRANT SELECT ON {prefix}meta TO {role};
GRANT SELECT ON {prefix}migrations TO {role};
GRANT SELECT ON {prefix}cursors TO {role};
GRANT SELECT ON {prefix}relays TO {role};
GRANT SELECT ON {prefix}held TO {role};
GRANT SELECT ON {prefix}redrives TO {role};
GRANT SELECT ON {prefix}incarnations TO {role};
GRANT SELECT ON {prefix}decisions TO {role};
GRANT SELECT ON {prefix}relay_filters TO {role};
GRANT SELECT ON {prefix}unrouted TO {role};
GRANT SELECT ON {prefix}claims TO {role};
GRANT SELECT ON {prefix}watermarks TO {role};
GRANT SELECT ON {prefix}watermark_marks TO {role};
GRANT SELECT ON {prefix}versions TO {role};
GRANT SELECT ON {prefix}effects TO {role};
GRANT SELECT ON {prefix}records TO {role};
GRANT SELECT (seq, partition_id, id, topic, message_key, type, source, subject, tenant, message_time, schema_version, aggregate_version, content_type,
  correlation_id, causation_id, available_at, created_at)
  ON {prefix}log TO {role};
GRANT SELECT (relay, seq, partition_id, id, topic, message_key, type, source, subject, tenant, message_time, schema_version, aggregate_version, content_type,
  correlation_id, causation_id, available_at, created_at, reason,
  attempts, due_at, parked_at, redrives, history) ON {prefix}parked TO {role};
GRANT SELECT (number, relay, seq, partition_id, id, topic, message_key, type, source, subject, tenant, message_time, schema_version, aggregate_version, content_type,
  correlation_id, causation_id, available_at, created_at,
  reason, cause, fingerprint, attempts, redrives, edits, died_at, state, redrive, resolved_at, resolved_by, resolution, history)
  ON {prefix}dead TO {role};
