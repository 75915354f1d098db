-- The tables of pgbench's own script (TPC-B-like), small and with many branches, so that transactions conflict, and with a
-- counter in each account, which every transaction on it increments.
create table branches (id int primary key, balance bigint not null default 0) with (fillfactor = 50);
create table tellers (id int primary key, balance bigint not null default 0) with (fillfactor = 50);
create table accounts (id int primary key, balance bigint not null default 0, counter bigint not null default 0) with (fillfactor = 50);
create table history (teller int, branch int, account int, delta int, counter bigint, transaction bigint, at timestamptz default now());
insert into branches (id) select generate_series(1, 200);
insert into tellers (id) select generate_series(1, 2000);
insert into accounts (id) select generate_series(0, 1000); -- 0 is for the transaction that stays open throughout
