-- oldest program: 10
-- oldest publisher: 6
-- locks: saga_records
-- The schema version of the command; 0: a program that did not keep it wrote the row. What version that was is decided when the record is
-- read, by what its reader knows, instead of here, where it would be a guess that stays.
alter table {prefix}saga_records add column schema_version integer not null default 0;
