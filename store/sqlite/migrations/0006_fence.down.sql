DROP TABLE {prefix}decisions;
DROP TABLE {prefix}incarnation;

DELETE FROM {prefix}relays WHERE member = 0;
ALTER TABLE {prefix}relays DROP COLUMN member;
ALTER TABLE {prefix}relays DROP COLUMN ttl;

-- No lease holds any more.
ALTER TABLE {prefix}cursors ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0; -- 0: never leased
ALTER TABLE {prefix}cursors ADD COLUMN lease_until INTEGER NOT NULL DEFAULT 0;
UPDATE {prefix}cursors SET owner = '', epoch = max(1, number);
ALTER TABLE {prefix}cursors DROP COLUMN content;
ALTER TABLE {prefix}cursors DROP COLUMN number;
ALTER TABLE {prefix}cursors DROP COLUMN incarnation;
ALTER TABLE {prefix}cursors DROP COLUMN token;
