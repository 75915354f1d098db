-- Times are microseconds since 1970 (UTC). Every table is STRICT, so that a row written by another program has the types
-- that this one reads.

CREATE TABLE {prefix}meta (
  name  TEXT PRIMARY KEY,
  value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO {prefix}meta (name, value) VALUES ('partitions', {partitions});

-- AUTOINCREMENT: a sequence is never given twice, also when retention has dropped the end of the log.
CREATE TABLE {prefix}log (
  seq               INTEGER PRIMARY KEY AUTOINCREMENT,
  partition         INTEGER NOT NULL,
  id                TEXT NOT NULL,
  topic             TEXT NOT NULL,
  key               TEXT NOT NULL DEFAULT '',
  type              TEXT NOT NULL,
  source            TEXT NOT NULL DEFAULT '',
  subject           TEXT NOT NULL DEFAULT '',
  tenant            TEXT NOT NULL DEFAULT '',
  message_time      INTEGER NOT NULL,
  schema_version    INTEGER NOT NULL DEFAULT 0,
  aggregate_version INTEGER NOT NULL DEFAULT 0,
  content_type      TEXT NOT NULL DEFAULT 'application/json',
  headers           TEXT NOT NULL DEFAULT '{}',
  correlation_id    TEXT NOT NULL DEFAULT '',
  causation_id      TEXT NOT NULL DEFAULT '',
  payload           BLOB NOT NULL,
  available_at      INTEGER NOT NULL DEFAULT 0, -- 0: at once
  created_at        INTEGER NOT NULL
) STRICT;

-- A relay reads on in a partition by sequence: an index ends with the table's key, so this is (partition, seq).
CREATE INDEX {prefix}log_partition ON {prefix}log (partition);

CREATE TABLE {prefix}cursors (
  relay       TEXT NOT NULL,
  partition   INTEGER NOT NULL,
  position    INTEGER NOT NULL, -- delivered: all of the partition with seq <= position
  owner       TEXT NOT NULL DEFAULT '', -- '': nobody
  epoch       INTEGER NOT NULL DEFAULT 0, -- 0: never leased
  lease_until INTEGER NOT NULL DEFAULT 0,
  delivered   INTEGER NOT NULL DEFAULT 0,
  failed      INTEGER NOT NULL DEFAULT 0,
  settled_at  INTEGER NOT NULL,
  PRIMARY KEY (relay, partition)
) STRICT, WITHOUT ROWID;

CREATE TABLE {prefix}relays (
  relay       TEXT NOT NULL,
  owner       TEXT NOT NULL,
  host        TEXT NOT NULL,
  version     TEXT NOT NULL,
  started_at  INTEGER NOT NULL,
  seen_at     INTEGER NOT NULL,
  alive_until INTEGER NOT NULL,
  PRIMARY KEY (relay, owner)
) STRICT, WITHOUT ROWID;

CREATE TABLE {prefix}parked (
  relay             TEXT NOT NULL,
  partition         INTEGER NOT NULL,
  seq               INTEGER NOT NULL,
  id                TEXT NOT NULL,
  topic             TEXT NOT NULL,
  key               TEXT NOT NULL,
  type              TEXT NOT NULL,
  source            TEXT NOT NULL,
  subject           TEXT NOT NULL,
  tenant            TEXT NOT NULL,
  message_time      INTEGER NOT NULL,
  schema_version    INTEGER NOT NULL,
  aggregate_version INTEGER NOT NULL,
  content_type      TEXT NOT NULL,
  headers           TEXT NOT NULL,
  correlation_id    TEXT NOT NULL,
  causation_id      TEXT NOT NULL,
  reason            TEXT NOT NULL,
  attempts          INTEGER NOT NULL,
  due_at            INTEGER, -- NULL: it waits as head or follower of its held key
  parked_at         INTEGER NOT NULL,
  redrives          INTEGER NOT NULL,
  history           TEXT NOT NULL,
  available_at      INTEGER NOT NULL,
  created_at        INTEGER NOT NULL,
  payload           BLOB NOT NULL,
  PRIMARY KEY (relay, seq)
) STRICT;

-- What is due, by partition; covers the search.
CREATE INDEX {prefix}parked_due ON {prefix}parked (relay, partition, due_at, seq) WHERE due_at IS NOT NULL;
-- The head and followers of a held key, in order.
CREATE INDEX {prefix}parked_key ON {prefix}parked (relay, key, seq) WHERE due_at IS NULL;
-- What lies behind a position of a partition; covers the search.
CREATE INDEX {prefix}parked_partition ON {prefix}parked (relay, partition, seq);
-- The age of the oldest, for the status.
CREATE INDEX {prefix}parked_age ON {prefix}parked (relay, parked_at);

CREATE TABLE {prefix}held (
  relay     TEXT NOT NULL,
  key       TEXT NOT NULL,
  partition INTEGER NOT NULL,
  seq       INTEGER NOT NULL, -- of the head
  reason    TEXT NOT NULL,
  cause     TEXT NOT NULL,
  attempts  INTEGER NOT NULL,
  since     INTEGER NOT NULL,
  due_at    INTEGER, -- NULL: it waits for an operator
  PRIMARY KEY (relay, key)
) STRICT, WITHOUT ROWID;

-- What is due, and which keys of a partition are held; covers both.
CREATE INDEX {prefix}held_due ON {prefix}held (relay, partition, due_at);

CREATE TABLE {prefix}dead (
  number            INTEGER PRIMARY KEY AUTOINCREMENT,
  relay             TEXT NOT NULL,
  partition         INTEGER NOT NULL,
  seq               INTEGER NOT NULL,
  id                TEXT NOT NULL,
  topic             TEXT NOT NULL,
  key               TEXT NOT NULL,
  type              TEXT NOT NULL,
  source            TEXT NOT NULL,
  subject           TEXT NOT NULL,
  tenant            TEXT NOT NULL,
  message_time      INTEGER NOT NULL,
  schema_version    INTEGER NOT NULL,
  aggregate_version INTEGER NOT NULL,
  content_type      TEXT NOT NULL,
  headers           TEXT NOT NULL,
  correlation_id    TEXT NOT NULL,
  causation_id      TEXT NOT NULL,
  reason            TEXT NOT NULL,
  cause             TEXT NOT NULL,
  attempts          INTEGER NOT NULL,
  redrives          INTEGER NOT NULL,
  died_at           INTEGER NOT NULL,
  state             TEXT NOT NULL,
  resolved_at       INTEGER NOT NULL DEFAULT 0,
  resolved_by       TEXT NOT NULL DEFAULT '',
  resolution        TEXT NOT NULL DEFAULT '',
  history           TEXT NOT NULL,
  available_at      INTEGER NOT NULL,
  created_at        INTEGER NOT NULL,
  payload           BLOB NOT NULL
) STRICT;

-- The dead letters of a message, and of what lies behind a position of a partition.
CREATE INDEX {prefix}dead_message ON {prefix}dead (relay, partition, seq);
-- Lists and counts by state, and by state and relay, in order of number.
CREATE INDEX {prefix}dead_state ON {prefix}dead (state);
CREATE INDEX {prefix}dead_relay ON {prefix}dead (relay, state);
-- What became of a message, by its ID.
CREATE INDEX {prefix}dead_id ON {prefix}dead (id);
