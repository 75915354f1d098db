drop table {prefix}attempts;
