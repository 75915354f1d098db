-- The schema version of the command; 0: a program that did not keep it wrote the row. What version that was is decided when the record is
-- read, by what its reader knows, instead of here, where it would be a guess that stays.
SET @postrider_statement = IF(
  (SELECT COUNT(*) FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = '{prefix}saga_records' AND column_name = 'schema_version') > 0, 'DO 0',
  'ALTER TABLE {prefix}saga_records ADD COLUMN schema_version INT NOT NULL DEFAULT 0');

PREPARE postrider_statement FROM @postrider_statement;

EXECUTE postrider_statement;

DEALLOCATE PREPARE postrider_statement;
