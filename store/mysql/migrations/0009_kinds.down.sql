-- Programs of the older version recognize consumers by this position.
SET @postrider_statement = IF(
  (SELECT COUNT(*) FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = '{prefix}cursors' AND column_name = 'kind') = 0, 'DO 0',
  'UPDATE {prefix}cursors SET position = 9223372036854775806 WHERE kind = ''consumer''');

PREPARE postrider_statement FROM @postrider_statement;

EXECUTE postrider_statement;

SET @postrider_statement = IF(
  (SELECT COUNT(*) FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = '{prefix}cursors' AND column_name = 'kind') = 0, 'DO 0',
  'ALTER TABLE {prefix}cursors DROP COLUMN kind');

PREPARE postrider_statement FROM @postrider_statement;

EXECUTE postrider_statement;

DEALLOCATE PREPARE postrider_statement;
