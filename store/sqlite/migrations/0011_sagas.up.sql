-- Instances of sagas, what participants remember, and documents that are rarely changed.

-- One row for each instance. No index contains a column that an ordinary transition changes, not even in its condition.
CREATE TABLE {prefix}sagas (
  run            TEXT NOT NULL PRIMARY KEY,
  id             TEXT NOT NULL, -- the caller's
  engine         TEXT NOT NULL,
  saga           TEXT NOT NULL,
  version        INTEGER NOT NULL,
  hash           TEXT NOT NULL, -- of the definition
  kind           TEXT NOT NULL,
  saga_key       TEXT NOT NULL,
  holds_key      INTEGER NOT NULL, -- until it first ends
  parent_run     TEXT NOT NULL, -- '': none
  parent_step    TEXT NOT NULL,
  correlation_id TEXT NOT NULL,
  tenant         TEXT NOT NULL,
  token          TEXT NOT NULL, -- replies echo it
  status         TEXT NOT NULL,
  direction      TEXT NOT NULL,
  paused         INTEGER NOT NULL,
  past_pivot     INTEGER NOT NULL,
  cause          TEXT NOT NULL,
  detail         TEXT NOT NULL,
  waiting        TEXT NOT NULL, -- for what
  obligations    INTEGER NOT NULL, -- open ones
  released       INTEGER NOT NULL, -- obligations that an operator released
  deadline_us    INTEGER NOT NULL, -- since started_at; 0: none
  timer_us       INTEGER NOT NULL,
  timer_id       TEXT NOT NULL,
  rev            INTEGER NOT NULL,
  state          BLOB NOT NULL, -- the engine's
  data           BLOB NOT NULL, -- the user's
  started_at     INTEGER NOT NULL,
  updated_at     INTEGER NOT NULL,
  stuck_at       INTEGER,
  ended_at       INTEGER,
  purge_from     INTEGER -- the end of an instance that may be purged and that no other one started
) STRICT;

-- One instance for each ID.
CREATE UNIQUE INDEX {prefix}sagas_id ON {prefix}sagas (id);

-- One instance of a saga holds a key.
CREATE UNIQUE INDEX {prefix}sagas_held ON {prefix}sagas (saga, saga_key) WHERE holds_key;

-- All instances of a key.
CREATE INDEX {prefix}sagas_key ON {prefix}sagas (saga_key, run) WHERE saga_key <> '';

-- Those that have not ended, for lists and counts.
CREATE INDEX {prefix}sagas_open ON {prefix}sagas (run) WHERE ended_at IS NULL;

-- Those for which an operator has to decide.
CREATE INDEX {prefix}sagas_stuck ON {prefix}sagas (run) WHERE stuck_at IS NOT NULL;

-- Those that ended longest ago.
CREATE INDEX {prefix}sagas_purge ON {prefix}sagas (engine, purge_from) WHERE purge_from IS NOT NULL;

-- Those that an instance started.
CREATE INDEX {prefix}sagas_children ON {prefix}sagas (parent_run) WHERE parent_run <> '';

-- One row for each transition, only ever inserted.
CREATE TABLE {prefix}saga_history (
  run        TEXT NOT NULL,
  rev        INTEGER NOT NULL,
  at         INTEGER NOT NULL,
  input      TEXT NOT NULL,
  step       TEXT NOT NULL,
  message_id TEXT NOT NULL,
  actor      TEXT NOT NULL,
  note       TEXT NOT NULL,
  entries    TEXT NOT NULL, -- JSON array, '': none
  patch      BLOB NOT NULL, -- of data
  PRIMARY KEY (run, rev)
) STRICT, WITHOUT ROWID;

-- Other ways to find an instance.
CREATE TABLE {prefix}saga_aliases (
  saga  TEXT NOT NULL,
  name  TEXT NOT NULL,
  value TEXT NOT NULL,
  run   TEXT NOT NULL,
  PRIMARY KEY (saga, name, value)
) STRICT, WITHOUT ROWID;

CREATE INDEX {prefix}saga_aliases_run ON {prefix}saga_aliases (run);

-- What instances can be searched by.
CREATE TABLE {prefix}saga_labels (
  run   TEXT NOT NULL,
  name  TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (run, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX {prefix}saga_labels_value ON {prefix}saga_labels (name, value, run);

-- What participants did.
CREATE TABLE {prefix}saga_records (
  participant   TEXT NOT NULL,
  run           TEXT NOT NULL,
  step          TEXT NOT NULL,
  state         TEXT NOT NULL,
  command_type  TEXT NOT NULL,
  command       BLOB NOT NULL,
  reply_type    TEXT NOT NULL,
  reply         BLOB NOT NULL,
  first_sent_at INTEGER NOT NULL, -- of the command, by the clock of the engine's database; 0: unknown
  saved_at      INTEGER NOT NULL,
  closed        INTEGER NOT NULL DEFAULT 0, -- the engine will not ask about the run again
  purge_from    INTEGER, -- when it was saved, unless it must be kept
  PRIMARY KEY (participant, run, step)
) STRICT, WITHOUT ROWID;

CREATE INDEX {prefix}saga_records_purge ON {prefix}saga_records (purge_from) WHERE purge_from IS NOT NULL;

-- Documents that are rarely changed, by kind; so far, stored definitions of sagas and the reports of processes that have them.
CREATE TABLE {prefix}records (
  kind       TEXT NOT NULL,
  id         TEXT NOT NULL,
  rev        INTEGER NOT NULL DEFAULT 1, -- rises with each change
  at         INTEGER NOT NULL, -- of the last change
  expires_at INTEGER, -- NULL: never
  body       BLOB NOT NULL,
  PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;
