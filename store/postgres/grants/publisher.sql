-- May publish, from Go and by {prefix}publish. It reads no messages: of the log it sees the IDs, to find out what an uncertain
-- commit has written.
grant usage on schema {schema} to {role};
grant insert, select (xid, id) on {prefix}log to {role};
grant select on {prefix}meta, {prefix}migrations to {role};
