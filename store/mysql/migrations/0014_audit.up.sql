-- What grants access to the administration, and what operators did.
CREATE TABLE IF NOT EXISTS {prefix}auth (
  kind       VARBINARY(64) NOT NULL,
  id         VARBINARY(512) NOT NULL,
  rev        BIGINT NOT NULL DEFAULT 1,
  at         BIGINT NOT NULL,
  expires_at BIGINT NULL,
  body       MEDIUMBLOB NOT NULL,
  PRIMARY KEY (kind, id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

CREATE TABLE IF NOT EXISTS {prefix}audit (
  kind       VARBINARY(64) NOT NULL,
  id         VARBINARY(512) NOT NULL,
  rev        BIGINT NOT NULL DEFAULT 1,
  at         BIGINT NOT NULL,
  expires_at BIGINT NULL,
  body       MEDIUMBLOB NOT NULL,
  PRIMARY KEY (kind, id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;
