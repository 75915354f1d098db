-- locks: redrives
update {prefix}redrives set state = 'cancelled', cancelled_by = 'postrider' where state = 'failed';
alter table {prefix}redrives
    drop column failures, drop column cause,
    drop constraint {prefixname}redrives_state_check,
    add constraint {prefixname}redrives_state_check check (state in ('running', 'finished', 'cancelled'));
