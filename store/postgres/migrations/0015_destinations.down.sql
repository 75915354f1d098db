-- locks: relays
alter table {prefix}relays drop column destination;
