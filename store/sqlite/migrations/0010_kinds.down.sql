-- Programs of the older version recognize consumers by this position.
UPDATE {prefix}cursors SET position = 9223372036854775806 WHERE kind = 'consumer';
ALTER TABLE {prefix}cursors DROP COLUMN kind;
