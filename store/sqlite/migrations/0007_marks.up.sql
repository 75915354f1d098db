-- What the log itself said of the message at a watermark (slot 0), and which messages the last 1,000 moves consumed (slots
-- 1 to 1,000, in turn; inbox.RememberedMoves).
CREATE TABLE {prefix}watermark_marks (
  consumer  TEXT NOT NULL,
  partition TEXT NOT NULL, -- of the source
  epoch     TEXT NOT NULL,
  slot      INTEGER NOT NULL,
  n         INTEGER NOT NULL, -- counts the moves
  position  INTEGER NOT NULL,
  mark      TEXT NOT NULL,
  consumed  BLOB NOT NULL, -- digests, 8 bytes for each message
  PRIMARY KEY (consumer, partition, epoch, slot)
) STRICT, WITHOUT ROWID;
