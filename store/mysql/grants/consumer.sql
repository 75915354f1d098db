-- May consume (inbox) and run sagas. It reads the messages that it has parked or dead-lettered, and those of relays; of the log only numbers. If
-- handlers publish, it is a publisher too.
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}cursors TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}relays TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}parked TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}held TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}dead TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}edits TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}redrives TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}incarnations TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}decisions TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}relay_filters TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}unrouted TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}aside TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}claims TO {role};
-- Nothing writes these positions of older programs.
GRANT SELECT, DELETE ON {prefix}watermarks TO {role};
GRANT SELECT, DELETE ON {prefix}watermark_marks TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}versions TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}effects TO {role};
GRANT SELECT, UPDATE ON {prefix}meta TO {role};
GRANT SELECT (id, seq, partition_id) ON {prefix}log TO {role};
GRANT SELECT ON {prefix}migrations TO {role};
GRANT EXECUTE ON PROCEDURE {prefix}commit_settled TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}sagas TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}saga_history TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}saga_aliases TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}saga_labels TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}saga_records TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}records TO {role};
