-- locks: redrives
-- A redrive whose steps keep failing says why, and ends.
alter table {prefix}redrives
    add column failures integer not null default 0, -- steps that have failed since one succeeded
    add column cause text not null default '',      -- of the last of them
    drop constraint {prefixname}redrives_state_check,
    add constraint {prefixname}redrives_state_check check (state in ('running', 'finished', 'cancelled', 'failed'));
