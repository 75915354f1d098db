-- locks: dead, dead_edits, redrives
drop table {prefix}redrives;
drop table {prefix}dead_edits;
drop index {prefix}dead_id;
alter table {prefix}dead drop column edits, drop column redrive, drop column fingerprint;
