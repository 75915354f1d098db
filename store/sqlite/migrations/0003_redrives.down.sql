DROP TABLE {prefix}redrives;
DROP TABLE {prefix}dead_edits;
DROP INDEX {prefix}dead_redrive;
DROP INDEX {prefix}dead_fingerprint;
DROP INDEX {prefix}dead_unmarked;
ALTER TABLE {prefix}dead DROP COLUMN edits;
ALTER TABLE {prefix}dead DROP COLUMN redrive;
ALTER TABLE {prefix}dead DROP COLUMN fingerprint;
