-- What became of attempts whose answers are worth keeping, such as those of webhooks.
CREATE TABLE {prefix}attempts (
  message_id     TEXT NOT NULL,
  relay          TEXT NOT NULL,
  at             INTEGER NOT NULL, -- the sender's clock
  attempt        INTEGER NOT NULL,
  took           INTEGER NOT NULL, -- microseconds
  outcome        TEXT NOT NULL,
  status         INTEGER NOT NULL, -- 0: no answer
  answer         BLOB NOT NULL, -- its beginning
  error          TEXT NOT NULL,
  request_sha256 BLOB NOT NULL,
  expires_at     INTEGER NOT NULL,
  PRIMARY KEY (message_id, relay, at, attempt)
) STRICT, WITHOUT ROWID;

-- Those whose time is over.
CREATE INDEX {prefix}attempts_expiry ON {prefix}attempts (expires_at);
