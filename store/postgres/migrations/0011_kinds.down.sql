alter table {prefix}relay_partitions drop column kind;
