ALTER TABLE {prefix}saga_records DROP COLUMN schema_version;
