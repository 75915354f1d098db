DROP TABLE IF EXISTS {prefix}effects;

DROP TABLE IF EXISTS {prefix}versions;

DROP TABLE IF EXISTS {prefix}watermarks;

DROP TABLE IF EXISTS {prefix}claims;

DROP TABLE IF EXISTS {prefix}aside;
