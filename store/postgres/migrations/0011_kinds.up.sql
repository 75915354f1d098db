-- oldest program: 10
-- oldest publisher: 6
-- locks: relay_partitions
-- Whether a name is that of a relay or of a consumer. Null: it was registered by a program of version 10, which does not know
-- kinds and recognizes consumers by cursors at 9223372036854775806. Newer programs write such cursors too.
alter table {prefix}relay_partitions add column kind text check (kind in ('relay', 'consumer'));
update {prefix}relay_partitions g set kind = case when exists (select from {prefix}cursors c
    where c.relay = g.relay and c.partition = g.partition and c.position = 9223372036854775806) then 'consumer' else 'relay' end;
