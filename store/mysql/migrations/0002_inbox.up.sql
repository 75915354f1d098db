-- What consumers remember. What they put aside stands in parked, held and dead, under the consumer's name.

-- Draws the sequences of what is put aside. It is empty but for those that are being drawn.
CREATE TABLE IF NOT EXISTS {prefix}aside (
  seq BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- token tells the claims of one call from those that were there.
CREATE TABLE IF NOT EXISTS {prefix}claims (
  consumer   VARBINARY(64) NOT NULL,
  id         VARBINARY(64) NOT NULL,
  token      BIGINT NOT NULL,
  claimed_at BIGINT NOT NULL,
  PRIMARY KEY (consumer, id),
  -- The oldest claims of a consumer, for those that are past retention.
  KEY {prefix}claims_age (consumer, claimed_at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- position NULL: locked but not moved yet. moved counts up over the epochs of a partition.
CREATE TABLE IF NOT EXISTS {prefix}watermarks (
  consumer     VARBINARY(64) NOT NULL,
  partition_id VARBINARY(512) NOT NULL,
  epoch        VARBINARY(256) NOT NULL,
  position     BIGINT NULL,
  moved        BIGINT NOT NULL,
  PRIMARY KEY (consumer, partition_id, epoch)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

CREATE TABLE IF NOT EXISTS {prefix}versions (
  consumer    VARBINARY(64) NOT NULL,
  message_key VARBINARY(256) NOT NULL,
  version     BIGINT NOT NULL,
  PRIMARY KEY (consumer, message_key)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- Effects outside the database: who is bringing them about, and which are done (done_at NULL: not done).
CREATE TABLE IF NOT EXISTS {prefix}effects (
  guard       VARBINARY(64) NOT NULL,
  id          VARBINARY(256) NOT NULL,
  token       VARBINARY(64) NOT NULL,
  lease_until BIGINT NOT NULL,
  done_at     BIGINT NULL,
  PRIMARY KEY (guard, id),
  -- Those done longest ago.
  KEY {prefix}effects_age (guard, done_at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;
