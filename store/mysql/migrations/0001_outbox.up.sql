-- Times are microseconds since 1970 (UTC). Texts are bytes (UTF-8), so that they are compared byte by byte: VARBINARY knows
-- no upper and lower case, no accents and no padding. Statements are separated by empty lines, each can be run again.

CREATE TABLE IF NOT EXISTS {prefix}meta (
  name  VARBINARY(32) NOT NULL PRIMARY KEY,
  value BIGINT NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- floor: every sequence up to it is over and done with; a relay that begins with the oldest message begins behind it. Who drops
-- messages or begins a relay locks it. closing: locked by whoever closes gaps;
-- importing: by whoever imports dead letters.
INSERT IGNORE INTO {prefix}meta (name, value)
VALUES ('partitions', {partitions}), ('floor', 0), ('closing', 0), ('importing', 0);

-- The log. partition_id -1: no message but a sequence that was missing and has been closed. The primary key alone is unique,
-- and InnoDB keeps it in memory's order of writing: publishing appends.
CREATE TABLE IF NOT EXISTS {prefix}log (
  seq               BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  partition_id      SMALLINT NOT NULL,
  id                VARBINARY(64) NOT NULL,
  topic             VARBINARY(249) NOT NULL,
  message_key       VARBINARY(256) NOT NULL DEFAULT '',
  type              VARBINARY(128) NOT NULL,
  source            VARBINARY(256) NOT NULL DEFAULT '',
  subject           VARBINARY(256) NOT NULL DEFAULT '',
  tenant            VARBINARY(64) NOT NULL DEFAULT '',
  message_time      BIGINT NOT NULL,
  schema_version    INT NOT NULL DEFAULT 0,
  aggregate_version BIGINT NOT NULL DEFAULT 0,
  content_type      VARBINARY(128) NOT NULL DEFAULT 'application/json',
  headers           MEDIUMBLOB NOT NULL,
  correlation_id    VARBINARY(128) NOT NULL DEFAULT '',
  causation_id      VARBINARY(128) NOT NULL DEFAULT '',
  payload           LONGBLOB NOT NULL,
  available_at      BIGINT NOT NULL DEFAULT 0,
  created_at        BIGINT NOT NULL,
  -- What a partition still has behind a position, counted for the status: an index ends with the primary key.
  KEY {prefix}log_partition (partition_id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- gaps: the sequences up to position that were not in the log when it was read.
CREATE TABLE IF NOT EXISTS {prefix}cursors (
  relay        VARBINARY(64) NOT NULL,
  partition_id SMALLINT NOT NULL,
  position     BIGINT NOT NULL,
  gaps         LONGBLOB NOT NULL,
  owner        VARBINARY(512) NOT NULL DEFAULT '',
  epoch        BIGINT NOT NULL DEFAULT 0,
  lease_until  BIGINT NOT NULL DEFAULT 0,
  delivered    BIGINT NOT NULL DEFAULT 0,
  failed       BIGINT NOT NULL DEFAULT 0,
  settled_at   BIGINT NOT NULL,
  PRIMARY KEY (relay, partition_id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

CREATE TABLE IF NOT EXISTS {prefix}relays (
  relay       VARBINARY(64) NOT NULL,
  owner       VARBINARY(512) NOT NULL,
  host        VARBINARY(512) NOT NULL,
  version     VARBINARY(512) NOT NULL,
  started_at  BIGINT NOT NULL,
  seen_at     BIGINT NOT NULL,
  alive_until BIGINT NOT NULL,
  PRIMARY KEY (relay, owner)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- due_at NULL: it waits as head or follower of its held key.
CREATE TABLE IF NOT EXISTS {prefix}parked (
  relay             VARBINARY(64) NOT NULL,
  partition_id      SMALLINT NOT NULL,
  seq               BIGINT NOT NULL,
  id                VARBINARY(64) NOT NULL,
  topic             VARBINARY(249) NOT NULL,
  message_key       VARBINARY(256) NOT NULL,
  type              VARBINARY(128) NOT NULL,
  source            VARBINARY(256) NOT NULL,
  subject           VARBINARY(256) NOT NULL,
  tenant            VARBINARY(64) NOT NULL,
  message_time      BIGINT NOT NULL,
  schema_version    INT NOT NULL,
  aggregate_version BIGINT NOT NULL,
  content_type      VARBINARY(128) NOT NULL,
  headers           MEDIUMBLOB NOT NULL,
  correlation_id    VARBINARY(128) NOT NULL,
  causation_id      VARBINARY(128) NOT NULL,
  reason            VARBINARY(32) NOT NULL,
  attempts          INT NOT NULL,
  due_at            BIGINT NULL,
  parked_at         BIGINT NOT NULL,
  redrives          INT NOT NULL,
  history           MEDIUMBLOB NOT NULL,
  available_at      BIGINT NOT NULL,
  created_at        BIGINT NOT NULL,
  payload           LONGBLOB NOT NULL,
  PRIMARY KEY (relay, seq),
  -- What is due, by partition.
  KEY {prefix}parked_due (relay, partition_id, due_at, seq),
  -- The head and followers of a held key, in order.
  KEY {prefix}parked_key (relay, message_key, due_at, seq),
  -- What lies behind a position of a partition.
  KEY {prefix}parked_partition (relay, partition_id, seq),
  -- The age of the oldest, for the status.
  KEY {prefix}parked_age (relay, parked_at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- seq is that of the head. due_at NULL: the key waits for an operator.
CREATE TABLE IF NOT EXISTS {prefix}held (
  relay        VARBINARY(64) NOT NULL,
  message_key  VARBINARY(256) NOT NULL,
  partition_id SMALLINT NOT NULL,
  seq          BIGINT NOT NULL,
  reason       VARBINARY(32) NOT NULL,
  cause        BLOB NOT NULL,
  attempts     INT NOT NULL,
  since        BIGINT NOT NULL,
  due_at       BIGINT NULL,
  PRIMARY KEY (relay, message_key),
  -- What is due, and which keys of a partition are held.
  KEY {prefix}held_due (relay, partition_id, due_at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- redrive: the redrive that sent the letter back, 0 if none did.
CREATE TABLE IF NOT EXISTS {prefix}dead (
  number            BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  relay             VARBINARY(64) NOT NULL,
  partition_id      SMALLINT NOT NULL,
  seq               BIGINT NOT NULL,
  id                VARBINARY(64) NOT NULL,
  topic             VARBINARY(249) NOT NULL,
  message_key       VARBINARY(256) NOT NULL,
  type              VARBINARY(128) NOT NULL,
  source            VARBINARY(256) NOT NULL,
  subject           VARBINARY(256) NOT NULL,
  tenant            VARBINARY(64) NOT NULL,
  message_time      BIGINT NOT NULL,
  schema_version    INT NOT NULL,
  aggregate_version BIGINT NOT NULL,
  content_type      VARBINARY(128) NOT NULL,
  headers           MEDIUMBLOB NOT NULL,
  correlation_id    VARBINARY(128) NOT NULL,
  causation_id      VARBINARY(128) NOT NULL,
  reason            BLOB NOT NULL,
  cause             BLOB NOT NULL,
  fingerprint       VARBINARY(16) NOT NULL,
  attempts          INT NOT NULL,
  redrives          INT NOT NULL,
  edits             INT NOT NULL DEFAULT 0,
  died_at           BIGINT NOT NULL,
  state             VARBINARY(16) NOT NULL,
  redrive           BIGINT NOT NULL DEFAULT 0,
  resolved_at       BIGINT NOT NULL DEFAULT 0,
  resolved_by       BLOB NOT NULL,
  resolution        BLOB NOT NULL,
  history           MEDIUMBLOB NOT NULL,
  available_at      BIGINT NOT NULL,
  created_at        BIGINT NOT NULL,
  payload           LONGBLOB NOT NULL,
  -- The dead letters of a message, and of what lies behind a position of a partition.
  KEY {prefix}dead_message (relay, partition_id, seq),
  -- Lists and counts by state, and by state and relay, in order of number.
  KEY {prefix}dead_state (state),
  KEY {prefix}dead_relay (relay, state),
  -- What became of a message, by its ID.
  KEY {prefix}dead_id (id),
  -- What became of a redrive's letters.
  KEY {prefix}dead_redrive (redrive)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- What payload and headers of a dead letter were before each edit.
CREATE TABLE IF NOT EXISTS {prefix}edits (
  number    BIGINT NOT NULL,
  n         INT NOT NULL,
  edited_at BIGINT NOT NULL,
  edited_by BLOB NOT NULL,
  why       BLOB NOT NULL,
  payload   LONGBLOB NOT NULL,
  headers   MEDIUMBLOB NOT NULL,
  PRIMARY KEY (number, n)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- body is the redrive as JSON.
CREATE TABLE IF NOT EXISTS {prefix}redrives (
  id    BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  state VARBINARY(16) NOT NULL,
  body  MEDIUMBLOB NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- What became of attempts whose answers are worth keeping, such as those of webhooks. made_at is on the sender's clock.
CREATE TABLE IF NOT EXISTS {prefix}attempts (
  message_id     VARBINARY(64) NOT NULL,
  relay          VARBINARY(64) NOT NULL,
  made_at        BIGINT NOT NULL,
  attempt        INT NOT NULL,
  took           BIGINT NOT NULL,
  outcome        VARBINARY(32) NOT NULL,
  status         INT NOT NULL,
  answer         BLOB NOT NULL,
  error          BLOB NOT NULL,
  request_sha256 VARBINARY(32) NOT NULL,
  expires_at     BIGINT NOT NULL,
  PRIMARY KEY (message_id, relay, made_at, attempt),
  -- Those whose time is over.
  KEY {prefix}attempts_expiry (expires_at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;
