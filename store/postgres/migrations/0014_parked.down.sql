-- locks: decisions, held, parked
drop index {prefix}parked_due;
create index {prefixname}parked_due on {prefix}parked (relay, due_at) where due_at is not null;
drop index {prefix}held_since;
delete from {prefix}decisions where seq <> 0;
alter table {prefix}decisions drop column seq;
