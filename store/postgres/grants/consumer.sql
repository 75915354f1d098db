-- May consume (inbox) and run sagas. It reads the messages that it has parked or dead-lettered, and those of relays; of the log only
-- numbers. If handlers publish, it is a publisher too.
grant usage on schema {schema} to {role};
grant select on {prefix}meta, {prefix}migrations to {role};
grant select (xid, seq, partition) on {prefix}log to {role};
grant usage, select, update on sequence {prefix}aside_seq to {role};
grant select, insert, update, delete on {prefix}relay_partitions, {prefix}leases, {prefix}incarnations, {prefix}decisions,
    {prefix}cursors, {prefix}relays, {prefix}relay_filters, {prefix}unrouted, {prefix}parked, {prefix}held, {prefix}dead,
    {prefix}dead_edits, {prefix}redrives, {prefix}claims, {prefix}versions, {prefix}effects,
    {prefix}sagas, {prefix}saga_history, {prefix}saga_aliases, {prefix}saga_labels, {prefix}saga_records, {prefix}records to {role};
grant update on {prefix}meta to {role};
-- Nothing writes these positions of older programs.
grant select, delete on {prefix}watermarks, {prefix}watermark_moves to {role};
