
-- May also see payloads and headers, edit dead letters and grant access to the administration. It adds to the audit and cannot change it.
grant select on {prefix}log, {prefix}parked, {prefix}dead, {prefix}dead_edits, {prefix}attempts, {prefix}sagas, {prefix}saga_history,
    {prefix}saga_aliases, {prefix}saga_labels, {prefix}audit to {role};
grant select, insert, update, delete on {prefix}records, {prefix}auth to {role};
grant insert on {prefix}audit, {prefix}dead_edits to {role};
grant update (payload, headers, edits) on {prefix}dead to {role};
