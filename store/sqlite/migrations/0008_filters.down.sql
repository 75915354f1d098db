DROP TABLE {prefix}unrouted;
ALTER TABLE {prefix}relays DROP COLUMN generation;
DROP TABLE {prefix}relay_filters;
