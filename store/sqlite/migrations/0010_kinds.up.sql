-- A consumer has a row in each partition for its lease and the number of its settlements, and no position in the log.
ALTER TABLE {prefix}cursors ADD COLUMN kind TEXT NOT NULL DEFAULT 'relay' CHECK (kind IN ('relay', 'consumer'));
UPDATE {prefix}cursors SET kind = 'consumer', position = 0 WHERE position = 9223372036854775806;
