SET @postrider_statement = IF(
  (SELECT COUNT(*) FROM information_schema.statistics
    WHERE table_schema = DATABASE() AND table_name = '{prefix}parked' AND index_name = '{prefix}parked_next') = 0, 'DO 0',
  'ALTER TABLE {prefix}parked DROP KEY {prefix}parked_next');

PREPARE postrider_statement FROM @postrider_statement;

EXECUTE postrider_statement;

SET @postrider_statement = IF(
  (SELECT COUNT(*) FROM information_schema.statistics
    WHERE table_schema = DATABASE() AND table_name = '{prefix}held' AND index_name = '{prefix}held_since') = 0, 'DO 0',
  'ALTER TABLE {prefix}held DROP KEY {prefix}held_since');

PREPARE postrider_statement FROM @postrider_statement;

EXECUTE postrider_statement;

SET @postrider_statement = IF(
  (SELECT COUNT(*) FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = '{prefix}decisions' AND column_name = 'seq') = 0, 'DO 0',
  'DELETE FROM {prefix}decisions WHERE seq <> 0');

PREPARE postrider_statement FROM @postrider_statement;

EXECUTE postrider_statement;

SET @postrider_statement = IF(
  (SELECT COUNT(*) FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = '{prefix}decisions' AND column_name = 'seq') = 0, 'DO 0',
  'ALTER TABLE {prefix}decisions DROP COLUMN seq');

PREPARE postrider_statement FROM @postrider_statement;

EXECUTE postrider_statement;

DEALLOCATE PREPARE postrider_statement;
