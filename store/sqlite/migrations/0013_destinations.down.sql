ALTER TABLE {prefix}relays DROP COLUMN destination;
