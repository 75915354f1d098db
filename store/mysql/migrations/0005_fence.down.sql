DROP PROCEDURE IF EXISTS {prefix}commit_settled;

-- {prefix}commit_settled moves a cursor and commits the transaction that it is called in, in one round trip: a process that is
-- paused never holds the lease's lock, on which whoever takes the partition over would wait. It fails, and commits nothing, when
-- the transaction has ended since the library began it (1305) or the lease is another's (50001).
CREATE PROCEDURE {prefix}commit_settled(
  of_relay    VARBINARY(64),
  of_part     SMALLINT,
  by_owner    VARBINARY(512),
  by_epoch    BIGINT,
  has_moved   BOOLEAN,
  to_position BIGINT,
  with_gaps   LONGBLOB,
  n_delivered BIGINT,
  n_failed    BIGINT
)
LANGUAGE SQL NOT DETERMINISTIC MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE found BOOLEAN DEFAULT FALSE;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET found = FALSE;
  RELEASE SAVEPOINT postrider_begun;
  SELECT TRUE INTO found FROM {prefix}cursors
    WHERE relay = of_relay AND partition_id = of_part AND owner = by_owner AND epoch = by_epoch FOR UPDATE;
  IF NOT found THEN
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 50001, MESSAGE_TEXT = 'the lease is another''s';
  END IF;
  UPDATE {prefix}cursors
    SET position = IF(has_moved, to_position, position), gaps = IF(has_moved, with_gaps, gaps), settled_at = {now},
      delivered = delivered + n_delivered, failed = failed + n_failed
    WHERE relay = of_relay AND partition_id = of_part;
  COMMIT;
END;

-- Leases are empty; an epoch is above all that there were before.
SET @postrider_statement = IF(
  (SELECT COUNT(*) FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = '{prefix}cursors' AND column_name = 'number') = 0, 'DO 0',
  'ALTER TABLE {prefix}cursors
    CHANGE COLUMN number epoch BIGINT NOT NULL DEFAULT 0, ADD COLUMN lease_until BIGINT NOT NULL DEFAULT 0,
    DROP COLUMN content, DROP COLUMN token, DROP COLUMN incarnation, DROP COLUMN checks');

PREPARE postrider_statement FROM @postrider_statement;

EXECUTE postrider_statement;

UPDATE {prefix}cursors SET owner = '', epoch = epoch + 1;

SET @postrider_statement = IF(
  (SELECT COUNT(*) FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = '{prefix}relays' AND column_name = 'ttl') = 0, 'DO 0',
  'ALTER TABLE {prefix}relays DROP COLUMN ttl, DROP COLUMN member');

PREPARE postrider_statement FROM @postrider_statement;

EXECUTE postrider_statement;

DEALLOCATE PREPARE postrider_statement;

DROP TABLE IF EXISTS {prefix}decisions;

DROP TABLE IF EXISTS {prefix}incarnations;
