-- oldest program: 10
-- oldest publisher: 6
-- locks: relays
-- The state of the relay's destination as the process found it, as JSON; '': unknown.
alter table {prefix}relays add column destination text not null default '';
