
-- May also see payloads and headers, edit dead letters and grant access to the administration. It adds to the audit and cannot change it.
GRANT SELECT ON {prefix}log TO {role};
GRANT SELECT ON {prefix}parked TO {role};
GRANT SELECT, UPDATE (payload, headers, edits) ON {prefix}dead TO {role};
GRANT SELECT, INSERT ON {prefix}edits TO {role};
GRANT SELECT ON {prefix}attempts TO {role};
GRANT SELECT ON {prefix}sagas TO {role};
GRANT SELECT ON {prefix}saga_history TO {role};
GRANT SELECT ON {prefix}saga_aliases TO {role};
GRANT SELECT ON {prefix}saga_labels TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}records TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}auth TO {role};
GRANT SELECT, INSERT ON {prefix}audit TO {role};
