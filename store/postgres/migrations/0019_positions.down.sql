-- locks: records
-- Positions stay: programs of the version before read them too.
drop index {prefix}records_list;
