DROP TABLE IF EXISTS {prefix}audit;

DROP TABLE IF EXISTS {prefix}auth;
