-- locks: attempts
drop table {prefix}attempts;
