-- A lease has a token and the incarnation of the file that granted it; who is alive is recorded apart from it.
ALTER TABLE {prefix}cursors ADD COLUMN token TEXT NOT NULL DEFAULT ''; -- '': none
-- '': granted, or released, before this migration.
ALTER TABLE {prefix}cursors ADD COLUMN incarnation TEXT NOT NULL DEFAULT '';
-- The number of the last settlement that was applied, and the SHA-256 sum of what it said.
ALTER TABLE {prefix}cursors ADD COLUMN number INTEGER NOT NULL DEFAULT 0;
ALTER TABLE {prefix}cursors ADD COLUMN content BLOB NOT NULL DEFAULT x'';
ALTER TABLE {prefix}cursors DROP COLUMN epoch;
ALTER TABLE {prefix}cursors DROP COLUMN lease_until;

ALTER TABLE {prefix}relays ADD COLUMN ttl INTEGER NOT NULL DEFAULT 0; -- microseconds
-- 0: it has leased partitions and sent no heartbeat, as an operator's program does.
ALTER TABLE {prefix}relays ADD COLUMN member INTEGER NOT NULL DEFAULT 1;

-- Which file this is, as a program saw it that leased partitions: a copy is another.
CREATE TABLE {prefix}incarnation (
  one      INTEGER PRIMARY KEY CHECK (one = 1),
  file     TEXT NOT NULL,
  began_at INTEGER NOT NULL -- when it was first used
) STRICT;

INSERT INTO {prefix}incarnation (one, file, began_at) VALUES (1, '', 0);

-- What operators decided about held keys.
CREATE TABLE {prefix}decisions (
  id          TEXT NOT NULL PRIMARY KEY,
  relay       TEXT NOT NULL,
  partition   INTEGER NOT NULL,
  key         TEXT NOT NULL,
  verb        TEXT NOT NULL,
  message_id  TEXT NOT NULL, -- of the blocking message that the operator saw; '': any
  decided_by  TEXT NOT NULL,
  reason      TEXT NOT NULL,
  state       TEXT NOT NULL,
  outcome     TEXT NOT NULL DEFAULT '', -- why it was refused
  count       INTEGER NOT NULL DEFAULT 0, -- messages that became dead letters
  recorded_at INTEGER NOT NULL,
  done_at     INTEGER -- NULL: it is open
) STRICT;

-- Those to be applied, by partition, oldest first.
CREATE INDEX {prefix}decisions_open ON {prefix}decisions (relay, partition, recorded_at) WHERE done_at IS NULL;
-- Those done longest ago.
CREATE INDEX {prefix}decisions_done ON {prefix}decisions (done_at) WHERE done_at IS NOT NULL;
