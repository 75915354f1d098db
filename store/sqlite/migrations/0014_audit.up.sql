-- What grants access to the administration, and what operators did.
CREATE TABLE {prefix}auth (
  kind       TEXT NOT NULL,
  id         TEXT NOT NULL,
  rev        INTEGER NOT NULL DEFAULT 1, -- rises with each change
  at         INTEGER NOT NULL, -- of the last change
  expires_at INTEGER, -- NULL: never
  body       BLOB NOT NULL,
  PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE {prefix}audit (
  kind       TEXT NOT NULL,
  id         TEXT NOT NULL,
  rev        INTEGER NOT NULL DEFAULT 1,
  at         INTEGER NOT NULL,
  expires_at INTEGER,
  body       BLOB NOT NULL,
  PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;
