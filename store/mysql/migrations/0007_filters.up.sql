-- The filters of topics that processes of a relay have registered. A relay's generations count from 1. topics is a JSON array of
-- patterns, registered_at when a process registered it last.
CREATE TABLE IF NOT EXISTS {prefix}relay_filters (
  relay         VARBINARY(64) NOT NULL,
  generation    INT NOT NULL,
  topics        MEDIUMBLOB NOT NULL,
  registered_at BIGINT NOT NULL,
  PRIMARY KEY (relay, generation)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- Messages that were skipped because no relay takes their topic. topic '': of more topics than are named.
CREATE TABLE IF NOT EXISTS {prefix}unrouted (
  relay         VARBINARY(64) NOT NULL,
  topic         VARBINARY(256) NOT NULL,
  partition_id  SMALLINT NOT NULL,
  message_count BIGINT NOT NULL,
  first_at      BIGINT NOT NULL,
  last_at       BIGINT NOT NULL,
  PRIMARY KEY (relay, topic, partition_id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- generation is that of the process's filter, 0 for none, and once it has left.
SET @postrider_statement = IF(
  (SELECT COUNT(*) FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = '{prefix}relays' AND column_name = 'generation') > 0, 'DO 0',
  'ALTER TABLE {prefix}relays ADD COLUMN generation INT NOT NULL DEFAULT 0');

PREPARE postrider_statement FROM @postrider_statement;

EXECUTE postrider_statement;

DEALLOCATE PREPARE postrider_statement;
