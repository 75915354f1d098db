-- locks: relay_filters, relays, unrouted
drop table {prefix}unrouted;
alter table {prefix}relays drop column generation;
drop table {prefix}relay_filters;
