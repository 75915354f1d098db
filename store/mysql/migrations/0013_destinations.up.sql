-- The state of the relay's destination as the process found it, as JSON; '': unknown.
SET @postrider_statement = IF(
  (SELECT COUNT(*) FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = '{prefix}relays' AND column_name = 'destination') > 0, 'DO 0',
  'ALTER TABLE {prefix}relays ADD COLUMN destination VARBINARY(4000) NOT NULL DEFAULT ''''');

PREPARE postrider_statement FROM @postrider_statement;

EXECUTE postrider_statement;

DEALLOCATE PREPARE postrider_statement;
