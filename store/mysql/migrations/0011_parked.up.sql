-- A decision about a parked message that waits by itself has the message's sequence, and its key; 0: it is about a held key.
SET @postrider_statement = IF(
  (SELECT COUNT(*) FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = '{prefix}decisions' AND column_name = 'seq') > 0, 'DO 0',
  'ALTER TABLE {prefix}decisions ADD COLUMN seq BIGINT NOT NULL DEFAULT 0');

PREPARE postrider_statement FROM @postrider_statement;

EXECUTE postrider_statement;

-- Pages of held keys, and of the messages that wait by themselves.
SET @postrider_statement = IF(
  (SELECT COUNT(*) FROM information_schema.statistics
    WHERE table_schema = DATABASE() AND table_name = '{prefix}held' AND index_name = '{prefix}held_since') > 0, 'DO 0',
  'ALTER TABLE {prefix}held ADD KEY {prefix}held_since (relay, since, message_key)');

PREPARE postrider_statement FROM @postrider_statement;

EXECUTE postrider_statement;

SET @postrider_statement = IF(
  (SELECT COUNT(*) FROM information_schema.statistics
    WHERE table_schema = DATABASE() AND table_name = '{prefix}parked' AND index_name = '{prefix}parked_next') > 0, 'DO 0',
  'ALTER TABLE {prefix}parked ADD KEY {prefix}parked_next (relay, due_at, partition_id, seq)');

PREPARE postrider_statement FROM @postrider_statement;

EXECUTE postrider_statement;

DEALLOCATE PREPARE postrider_statement;
