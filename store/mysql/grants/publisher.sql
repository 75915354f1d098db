-- May publish, from Go and by {prefix}publish. It reads no messages: of the log it sees IDs and numbers.
GRANT INSERT, SELECT (id, seq, partition_id) ON {prefix}log TO {role};
GRANT SELECT ON {prefix}meta TO {role};
GRANT SELECT ON {prefix}migrations TO {role};
GRANT EXECUTE ON PROCEDURE {prefix}publish TO {role};
