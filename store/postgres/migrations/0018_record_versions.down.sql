-- locks: saga_records
alter table {prefix}saga_records drop column schema_version;
