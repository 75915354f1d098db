-- locks: cursors, decisions, incarnations, leases, parked, relay_partitions, relays, meta
drop table {prefix}decisions;
drop index {prefix}parked_id;
alter table {prefix}cursors drop column content;
delete from {prefix}relays where not member;
alter table {prefix}relays drop column ttl, drop column member;
alter table {prefix}meta drop column timeline, drop column timeline_at;
drop table {prefix}incarnations;
drop table {prefix}leases;
-- Leases are free: their processes are those of the newer program.
create table {prefix}leases (
    relay       text not null,
    partition   smallint not null,
    owner       text not null default '',
    epoch       bigint not null default 0,
    lease_until timestamptz,
    primary key (relay, partition)
) with (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);
insert into {prefix}leases (relay, partition, epoch)
select p.relay, p.partition, 1 from {prefix}relay_partitions p;
drop table {prefix}relay_partitions;
drop function {prefix}incarnation();
