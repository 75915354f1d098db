-- The filters of topics that processes of a relay have registered. A relay's generations count from 1.
CREATE TABLE {prefix}relay_filters (
  relay         TEXT NOT NULL,
  generation    INTEGER NOT NULL,
  topics        TEXT NOT NULL, -- JSON array of patterns
  registered_at INTEGER NOT NULL, -- last
  PRIMARY KEY (relay, generation)
) STRICT, WITHOUT ROWID;

ALTER TABLE {prefix}relays ADD COLUMN generation INTEGER NOT NULL DEFAULT 0; -- of its filter; 0: none, or it has left

-- Messages that were skipped because no relay takes their topic.
CREATE TABLE {prefix}unrouted (
  relay     TEXT NOT NULL,
  topic     TEXT NOT NULL, -- '': of more topics than are named
  partition INTEGER NOT NULL,
  count     INTEGER NOT NULL,
  first_at  INTEGER NOT NULL,
  last_at   INTEGER NOT NULL,
  PRIMARY KEY (relay, topic, partition)
) STRICT, WITHOUT ROWID;
