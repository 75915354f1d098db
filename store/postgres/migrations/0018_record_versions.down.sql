-- locks: saga_records
-- Programs of version 17 purge whatever has a purge_from, also the record of a step that is done while its run goes on.
update {prefix}saga_records set purge_from = null where state = 'done' and not closed and purge_from is not null;
alter table {prefix}saga_records drop column schema_version;
