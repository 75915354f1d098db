-- May run relays, with retention and redrives. It reads all messages. Segments of the log stay the owner's, whose functions create
-- and drop them.
grant usage on schema {schema} to {role};
grant select on {prefix}migrations to {role};
grant select, update on {prefix}meta to {role};
grant select, insert, update, delete, truncate on {prefix}log to {role};
grant usage, select, update on sequence {prefix}log_seq_seq, {prefix}aside_seq to {role};
grant select, insert, update, delete on {prefix}relay_partitions, {prefix}leases, {prefix}incarnations, {prefix}decisions,
    {prefix}cursors, {prefix}relays, {prefix}relay_filters, {prefix}unrouted, {prefix}parked, {prefix}held, {prefix}dead,
    {prefix}dead_edits, {prefix}redrives, {prefix}attempts, {prefix}records to {role};
grant execute on function {prefix}log_attach(bigint, bigint), {prefix}log_detach(bigint), {prefix}log_drop(bigint) to {role};
do $$
declare
    segment regclass;
begin
    for segment in select relid from pg_catalog.pg_partition_tree('{prefix}log') where isleaf loop
        execute pg_catalog.format('grant select, insert, update, delete, truncate on %s to {role}', segment);
    end loop;
end
$$;
