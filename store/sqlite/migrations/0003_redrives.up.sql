-- What was missing to repair dead letters.

-- That of the cause, '' until somebody asks for fingerprints: the program computes it.
ALTER TABLE {prefix}dead ADD COLUMN fingerprint TEXT NOT NULL DEFAULT '';
-- The redrive that sent it back, 0: none.
ALTER TABLE {prefix}dead ADD COLUMN redrive INTEGER NOT NULL DEFAULT 0;
ALTER TABLE {prefix}dead ADD COLUMN edits INTEGER NOT NULL DEFAULT 0;

-- Those whose fingerprint is to be computed.
CREATE INDEX {prefix}dead_unmarked ON {prefix}dead (number) WHERE fingerprint = '' AND cause <> '';
CREATE INDEX {prefix}dead_fingerprint ON {prefix}dead (fingerprint);
-- What a redrive has sent back.
CREATE INDEX {prefix}dead_redrive ON {prefix}dead (redrive) WHERE redrive > 0;

-- What letters were before they were edited.
CREATE TABLE {prefix}dead_edits (
  number    INTEGER NOT NULL,
  n         INTEGER NOT NULL, -- from 1
  edited_at INTEGER NOT NULL,
  edited_by TEXT NOT NULL,
  why       TEXT NOT NULL,
  headers   TEXT NOT NULL,
  payload   BLOB NOT NULL,
  PRIMARY KEY (number, n)
) STRICT;

CREATE TABLE {prefix}redrives (
  id           INTEGER PRIMARY KEY AUTOINCREMENT,
  filter       TEXT NOT NULL, -- JSON
  rate         REAL NOT NULL, -- letters per second; 0: no bound
  state        TEXT NOT NULL,
  started_by   TEXT NOT NULL,
  started_at   INTEGER NOT NULL,
  ended_at     INTEGER NOT NULL DEFAULT 0, -- 0: running
  cancelled_by TEXT NOT NULL DEFAULT '',
  selected     INTEGER NOT NULL,
  done         INTEGER NOT NULL DEFAULT 0,
  refused      INTEGER NOT NULL DEFAULT 0,
  skipped      INTEGER NOT NULL DEFAULT 0,
  position     INTEGER NOT NULL DEFAULT 0, -- the letter that it came to last
  up_to        INTEGER NOT NULL,           -- the last letter that concerns it
  next_at      INTEGER NOT NULL DEFAULT 0  -- its rate lets it go on from then
) STRICT;

-- The running ones.
CREATE INDEX {prefix}redrives_state ON {prefix}redrives (state);
