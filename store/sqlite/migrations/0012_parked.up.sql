-- A decision about a parked message that waits by itself has the message's sequence, and its key; 0: it is about a held key.
ALTER TABLE {prefix}decisions ADD COLUMN seq INTEGER NOT NULL DEFAULT 0;
-- Pages of held keys, and of the messages that wait by themselves.
CREATE INDEX {prefix}held_since ON {prefix}held (relay, since, key);
CREATE INDEX {prefix}parked_next ON {prefix}parked (relay, due_at, partition, seq) WHERE due_at IS NOT NULL;
