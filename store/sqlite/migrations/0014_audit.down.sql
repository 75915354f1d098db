DROP TABLE {prefix}audit;
DROP TABLE {prefix}auth;
