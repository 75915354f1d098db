-- One row for each instance of a saga. saga_key is in held_key until the instance first ends; parent_run '' is none; deadline_us and
-- timer_us count since started_at, 0 is none; purge_from is the end of an instance that may be purged and that no other one started.
-- No index contains a column that an ordinary transition changes.
CREATE TABLE IF NOT EXISTS {prefix}sagas (
  run            VARBINARY(64) NOT NULL PRIMARY KEY,
  id             VARBINARY(64) NOT NULL,
  engine         VARBINARY(64) NOT NULL,
  saga           VARBINARY(128) NOT NULL,
  version        INT NOT NULL,
  hash           VARBINARY(128) NOT NULL,
  kind           VARBINARY(16) NOT NULL,
  saga_key       VARBINARY(256) NOT NULL,
  held_key       VARBINARY(256) NULL,
  holds_key      TINYINT NOT NULL,
  parent_run     VARBINARY(64) NOT NULL,
  parent_step    VARBINARY(256) NOT NULL,
  correlation_id VARBINARY(128) NOT NULL,
  tenant         VARBINARY(64) NOT NULL,
  token          VARBINARY(64) NOT NULL,
  status         VARBINARY(16) NOT NULL,
  direction      VARBINARY(16) NOT NULL,
  paused         TINYINT NOT NULL,
  past_pivot     TINYINT NOT NULL,
  cause          VARBINARY(64) NOT NULL,
  detail         BLOB NOT NULL,
  waiting        BLOB NOT NULL,
  obligations    INT NOT NULL,
  released       INT NOT NULL,
  deadline_us    BIGINT NOT NULL,
  timer_us       BIGINT NOT NULL,
  timer_id       VARBINARY(64) NOT NULL,
  rev            BIGINT NOT NULL,
  state          MEDIUMBLOB NOT NULL,
  data           MEDIUMBLOB NOT NULL,
  started_at     BIGINT NOT NULL,
  updated_at     BIGINT NOT NULL,
  stuck_at       BIGINT NULL,
  ended_at       BIGINT NULL,
  purge_from     BIGINT NULL,
  -- One instance for each ID.
  UNIQUE KEY {prefix}sagas_id (id),
  -- One instance of a saga holds a key.
  UNIQUE KEY {prefix}sagas_held (saga, held_key),
  -- All instances of a key.
  KEY {prefix}sagas_key (saga_key, run),
  -- Those that have not ended, for lists and counts.
  KEY {prefix}sagas_open (ended_at, run),
  -- Those for which an operator has to decide.
  KEY {prefix}sagas_stuck (stuck_at),
  -- Those that ended longest ago.
  KEY {prefix}sagas_purge (engine, purge_from, run),
  -- Those that an instance started.
  KEY {prefix}sagas_children (parent_run)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- One row for each transition, only ever inserted. entries is a JSON array, '' for none.
CREATE TABLE IF NOT EXISTS {prefix}saga_history (
  run        VARBINARY(64) NOT NULL,
  rev        BIGINT NOT NULL,
  at         BIGINT NOT NULL,
  input      VARBINARY(64) NOT NULL,
  step       VARBINARY(256) NOT NULL,
  message_id VARBINARY(64) NOT NULL,
  actor      VARBINARY(256) NOT NULL,
  note       BLOB NOT NULL,
  entries    MEDIUMBLOB NOT NULL,
  patch      MEDIUMBLOB NOT NULL,
  PRIMARY KEY (run, rev)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- Other ways to find an instance.
CREATE TABLE IF NOT EXISTS {prefix}saga_aliases (
  saga  VARBINARY(128) NOT NULL,
  name  VARBINARY(256) NOT NULL,
  value VARBINARY(256) NOT NULL,
  run   VARBINARY(64) NOT NULL,
  PRIMARY KEY (saga, name, value),
  KEY {prefix}saga_aliases_run (run)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- What instances can be searched by.
CREATE TABLE IF NOT EXISTS {prefix}saga_labels (
  run   VARBINARY(64) NOT NULL,
  name  VARBINARY(64) NOT NULL,
  value VARBINARY(256) NOT NULL,
  PRIMARY KEY (run, name),
  KEY {prefix}saga_labels_value (name, value, run)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- What participants did. state '' is only the lock; first_sent_at is a time of the engine's database, 0 if it is unknown; closed: the
-- engine will not ask about the run again; purge_from is when it was saved, unless it must be kept.
CREATE TABLE IF NOT EXISTS {prefix}saga_records (
  participant   VARBINARY(128) NOT NULL,
  run           VARBINARY(64) NOT NULL,
  step          VARBINARY(256) NOT NULL,
  state         VARBINARY(16) NOT NULL,
  command_type  VARBINARY(128) NOT NULL,
  command       MEDIUMBLOB NOT NULL,
  reply_type    VARBINARY(128) NOT NULL,
  reply         MEDIUMBLOB NOT NULL,
  first_sent_at BIGINT NOT NULL,
  saved_at      BIGINT NOT NULL,
  closed        TINYINT NOT NULL DEFAULT 0,
  purge_from    BIGINT NULL,
  PRIMARY KEY (participant, run, step),
  KEY {prefix}saga_records_purge (purge_from)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- Documents that are rarely changed, by kind; so far, stored definitions of sagas and the reports of processes that have them. rev
-- rises with each change, expires_at NULL is never.
CREATE TABLE IF NOT EXISTS {prefix}records (
  kind       VARBINARY(64) NOT NULL,
  id         VARBINARY(512) NOT NULL,
  rev        BIGINT NOT NULL DEFAULT 1,
  at         BIGINT NOT NULL,
  expires_at BIGINT NULL,
  body       MEDIUMBLOB NOT NULL,
  PRIMARY KEY (kind, id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;
