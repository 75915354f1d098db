-- A relay's parked messages, by ID.
SET @postrider_statement = IF(
  (SELECT COUNT(*) FROM information_schema.statistics
    WHERE table_schema = DATABASE() AND table_name = '{prefix}parked' AND index_name = '{prefix}parked_id') > 0, 'DO 0',
  'ALTER TABLE {prefix}parked ADD KEY {prefix}parked_id (relay, id)');

PREPARE postrider_statement FROM @postrider_statement;

EXECUTE postrider_statement;

DEALLOCATE PREPARE postrider_statement;
