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
