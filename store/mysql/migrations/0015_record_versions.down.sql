SET @postrider_statement = IF(
  (SELECT COUNT(*) FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = '{prefix}saga_records' AND column_name = 'schema_version') = 0, 'DO 0',
  'ALTER TABLE {prefix}saga_records DROP COLUMN schema_version');

PREPARE postrider_statement FROM @postrider_statement;

EXECUTE postrider_statement;

DEALLOCATE PREPARE postrider_statement;
