-- incarnation is a random value, new whenever a server has started: it is drawn by whoever finds none. The
-- table is emptied by every restart where the engine is MEMORY. The row of another server, which replication or a dump brought
-- along, counts for nothing. Rows are never changed: a replica that was restarted has none to change.
CREATE TABLE IF NOT EXISTS {prefix}incarnations (
  server      VARBINARY(320) NOT NULL PRIMARY KEY,
  incarnation VARBINARY(64) NOT NULL,
  begun_at    BIGINT NOT NULL
) ENGINE={incarnations};

-- Decisions of operators about held keys. done_at NULL: not applied yet.
CREATE TABLE IF NOT EXISTS {prefix}decisions (
  id            VARBINARY(64) NOT NULL PRIMARY KEY,
  relay         VARBINARY(64) NOT NULL,
  partition_id  SMALLINT NOT NULL,
  message_key   VARBINARY(256) NOT NULL,
  verb          VARBINARY(16) NOT NULL,
  message_id    VARBINARY(64) NOT NULL,
  decided_by    BLOB NOT NULL,
  reason        BLOB NOT NULL,
  state         VARBINARY(16) NOT NULL,
  outcome       BLOB NOT NULL,
  message_count INT NOT NULL DEFAULT 0,
  recorded_at   BIGINT NOT NULL,
  done_at       BIGINT NULL,
  -- Those that are to be applied, oldest first.
  KEY {prefix}decisions_open (relay, state, recorded_at),
  -- Those done longest ago.
  KEY {prefix}decisions_age (done_at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- number is that of the last settlement, content its SHA-256 sum. token and incarnation are those of the lease.
-- checks counts the times that a lease was checked without being settled: whoever relies on a lease writes its row.
SET @postrider_statement = IF(
  (SELECT COUNT(*) FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = '{prefix}cursors' AND column_name = 'epoch') = 0, 'DO 0',
  'ALTER TABLE {prefix}cursors
    CHANGE COLUMN epoch number BIGINT NOT NULL DEFAULT 0, DROP COLUMN lease_until,
    ADD COLUMN content VARBINARY(32) NOT NULL DEFAULT '''', ADD COLUMN token VARBINARY(64) NOT NULL DEFAULT '''',
    ADD COLUMN incarnation VARBINARY(64) NOT NULL DEFAULT '''',
    ADD COLUMN checks BIGINT NOT NULL DEFAULT 0');

PREPARE postrider_statement FROM @postrider_statement;

EXECUTE postrider_statement;

UPDATE {prefix}cursors SET owner = '' WHERE token = '';

-- member: it has sent a heartbeat, and takes a share of the partitions. ttl in microseconds.
SET @postrider_statement = IF(
  (SELECT COUNT(*) FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = '{prefix}relays' AND column_name = 'ttl') > 0, 'DO 0',
  'ALTER TABLE {prefix}relays ADD COLUMN ttl BIGINT NOT NULL DEFAULT 15000000, ADD COLUMN member BOOLEAN NOT NULL DEFAULT TRUE');

PREPARE postrider_statement FROM @postrider_statement;

EXECUTE postrider_statement;

DEALLOCATE PREPARE postrider_statement;

DROP PROCEDURE IF EXISTS {prefix}commit_settled;

-- {prefix}commit_settled records a settlement, removes parked messages (their sequences, separated by commas) and commits the
-- transaction that it is called in, in one round trip: a process that is paused never holds the lease's lock, on which whoever
-- takes the partition over would wait. to_number 0: messages are removed, and nothing moves. It fails, and commits nothing, when
-- the transaction has ended since the library began it (1305), the lease does not hold or the number is not the next (50001),
-- or a message is not parked (50002).
CREATE PROCEDURE {prefix}commit_settled(
  of_relay     VARBINARY(64),
  of_part      SMALLINT,
  by_token     VARBINARY(64),
  to_number    BIGINT,
  with_content VARBINARY(32),
  has_moved    BOOLEAN,
  to_position  BIGINT,
  with_gaps    LONGBLOB,
  n_delivered  BIGINT,
  n_failed     BIGINT,
  removed      LONGTEXT CHARACTER SET ascii
)
LANGUAGE SQL NOT DETERMINISTIC MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE n BIGINT DEFAULT 0;
  RELEASE SAVEPOINT postrider_begun;
  IF to_number > 0 THEN
    UPDATE {prefix}cursors
      SET position = IF(has_moved, to_position, position), gaps = IF(has_moved, with_gaps, gaps), settled_at = {now},
        delivered = delivered + n_delivered, failed = failed + n_failed, number = to_number, content = with_content
      WHERE relay = of_relay AND partition_id = of_part AND owner <> '' AND token = by_token AND incarnation = {present}
        AND number = to_number - 1;
    SET n = ROW_COUNT();
  ELSE
    UPDATE {prefix}cursors SET checks = checks + 1
      WHERE relay = of_relay AND partition_id = of_part AND owner <> '' AND token = by_token AND incarnation = {present};
    SET n = ROW_COUNT();
  END IF;
  IF n <> 1 THEN
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 50001, MESSAGE_TEXT = 'the lease does not hold, or the number is not the next';
  END IF;
  WHILE LENGTH(removed) > 0 DO
    DELETE FROM {prefix}parked WHERE relay = of_relay AND seq = CAST(SUBSTRING_INDEX(removed, ',', 1) AS SIGNED);
    SET n = ROW_COUNT();
    IF n <> 1 THEN
      SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 50002, MESSAGE_TEXT = 'a message is not parked';
    END IF;
    SET removed = IF(LOCATE(',', removed) = 0, '', SUBSTR(removed, LOCATE(',', removed) + 1));
  END WHILE;
  COMMIT;
  {unlimit}
END;
