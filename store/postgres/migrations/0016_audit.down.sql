-- locks: audit, auth
drop table {prefix}audit;
drop table {prefix}auth;
