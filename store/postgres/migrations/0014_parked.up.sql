-- oldest program: 10
-- oldest publisher: 6
-- locks: decisions, held, parked
-- A decision about a parked message that waits by itself has the message's sequence, and its key; 0: it is about a held key.
-- Relays of programs of versions 10 to 13 refuse the former.
alter table {prefix}decisions add column seq bigint not null default 0;
-- Pages of held keys.
create index {prefixname}held_since on {prefix}held (relay, since, key);
-- What is due, oldest first, and pages of the messages that wait by themselves.
drop index {prefix}parked_due;
create index {prefixname}parked_due on {prefix}parked (relay, due_at, partition, seq) where due_at is not null;
