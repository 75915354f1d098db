-- May run relays, with retention and redrives. It reads all messages.
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}meta TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}log TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}cursors TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}relays TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}parked TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}held TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}dead TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}edits TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}redrives TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}attempts TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}records TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}incarnations TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}decisions TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}relay_filters TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}unrouted TO {role};
GRANT SELECT ON {prefix}migrations TO {role};
GRANT EXECUTE ON PROCEDURE {prefix}commit_settled TO {role};
