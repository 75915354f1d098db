-- kind is 'relay' or 'consumer'. A consumer has a row in each partition for its lease and the number of its settlements, and no
-- position in the log.
SET @postrider_statement = IF(
  (SELECT COUNT(*) FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = '{prefix}cursors' AND column_name = 'kind') > 0, 'DO 0',
  'ALTER TABLE {prefix}cursors ADD COLUMN kind VARBINARY(16) NOT NULL DEFAULT ''relay''');

PREPARE postrider_statement FROM @postrider_statement;

EXECUTE postrider_statement;

DEALLOCATE PREPARE postrider_statement;

UPDATE {prefix}cursors SET kind = 'consumer', position = 0 WHERE position = 9223372036854775806;
