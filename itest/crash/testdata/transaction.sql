-- One transaction of the load. Of a hundred, ten are rolled back, one publishes and rolls back to a savepoint, and one stays
-- open for a while after publishing, so that it commits late.
\set account random_zipfian(1, 1000, 1.01)
\set branch random(1, 200)
\set teller random(1, 2000)
\set delta random(-5000, 5000)
\set fate random(1, 100)
begin;
update accounts set balance = balance + :delta, counter = counter + 1 where id = :account returning counter \gset
select balance from accounts where id = :account;
update tellers set balance = balance + :delta where id = :teller;
update branches set balance = balance + :delta where id = :branch;
insert into history (teller, branch, account, delta, counter, transaction)
    values (:teller, :branch, :account, :delta, :counter, pg_current_xact_id()::text::bigint);
\if :fate = 12
savepoint undone;
select postrider_publish('accounts', 'account/' || :account::int, 'account.changed', '{"account":-1,"counter":0,"transaction":0}');
rollback to savepoint undone;
\endif
select postrider_publish('accounts', 'account/' || :account::int, 'account.changed',
    json_build_object('account', :account::int, 'counter', :counter::bigint, 'transaction', pg_current_xact_id()::text::bigint)::text);
\if :fate <= 10
rollback;
\elif :fate = 11
select pg_sleep(0.1);
commit;
\else
commit;
\endif
