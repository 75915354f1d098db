-- The state of the relay's destination as the process found it, as JSON; '': unknown.
ALTER TABLE {prefix}relays ADD COLUMN destination TEXT NOT NULL DEFAULT '';
