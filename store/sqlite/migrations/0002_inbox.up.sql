-- What consumers remember. What they put aside stands in parked, held and dead, under the consumer's name.

-- The sequence given last to a message that a consumer put aside.
INSERT INTO {prefix}meta (name, value) VALUES ('aside', 0);

CREATE TABLE {prefix}claims (
  consumer   TEXT NOT NULL,
  id         TEXT NOT NULL, -- of the message
  claimed_at INTEGER NOT NULL,
  PRIMARY KEY (consumer, id)
) STRICT, WITHOUT ROWID;

-- The oldest claims of a consumer, for those that are past retention.
CREATE INDEX {prefix}claims_age ON {prefix}claims (consumer, claimed_at);

CREATE TABLE {prefix}watermarks (
  consumer  TEXT NOT NULL,
  partition TEXT NOT NULL, -- of the source
  epoch     TEXT NOT NULL,
  position  INTEGER NOT NULL, -- consumed: everything up to this offset
  moved     INTEGER NOT NULL, -- counts up over the epochs of a partition
  PRIMARY KEY (consumer, partition, epoch)
) STRICT, WITHOUT ROWID;

CREATE TABLE {prefix}versions (
  consumer TEXT NOT NULL,
  key      TEXT NOT NULL,
  version  INTEGER NOT NULL, -- the aggregate version applied last
  PRIMARY KEY (consumer, key)
) STRICT, WITHOUT ROWID;

-- Effects outside the database: who is bringing them about, and which are done.
CREATE TABLE {prefix}effects (
  guard       TEXT NOT NULL,
  id          TEXT NOT NULL,
  token       TEXT NOT NULL, -- of the attempt
  lease_until INTEGER NOT NULL,
  done_at     INTEGER, -- NULL: not done
  PRIMARY KEY (guard, id)
) STRICT, WITHOUT ROWID;

-- Those done longest ago.
CREATE INDEX {prefix}effects_age ON {prefix}effects (guard, done_at) WHERE done_at IS NOT NULL;
