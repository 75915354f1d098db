-- locks: relay_partitions
alter table {prefix}relay_partitions drop column kind;
