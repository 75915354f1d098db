DROP TABLE {prefix}effects;
DROP TABLE {prefix}versions;
DROP TABLE {prefix}watermarks;
DROP TABLE {prefix}claims;
DELETE FROM {prefix}meta WHERE name = 'aside';
