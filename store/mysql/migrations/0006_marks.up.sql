-- What the log itself said of the message at a watermark (slot 0), and which messages the last 1,000 moves consumed (slots
-- 1 to 1,000, in turn; inbox.RememberedMoves).
CREATE TABLE IF NOT EXISTS {prefix}watermark_marks (
  consumer     VARBINARY(64) NOT NULL,
  partition_id VARBINARY(512) NOT NULL,
  epoch        VARBINARY(256) NOT NULL,
  slot         SMALLINT NOT NULL,
  n            BIGINT NOT NULL,
  position     BIGINT NOT NULL,
  mark         VARBINARY(1024) NOT NULL,
  consumed     MEDIUMBLOB NOT NULL,
  PRIMARY KEY (consumer, partition_id, epoch, slot)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;
