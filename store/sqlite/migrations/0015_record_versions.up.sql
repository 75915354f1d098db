-- The schema version of the command; 0: a program that did not keep it wrote the row. What version that was is decided when the record is
-- read, by what its reader knows, instead of here, where it would be a guess that stays.
ALTER TABLE {prefix}saga_records ADD COLUMN schema_version INTEGER NOT NULL DEFAULT 0;
