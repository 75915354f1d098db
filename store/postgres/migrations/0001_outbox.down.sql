-- locks: cursors, dead, held, leases, parked, relays, migrations, meta, log
drop table {prefix}dead, {prefix}held, {prefix}parked, {prefix}relays, {prefix}cursors, {prefix}leases, {prefix}log,
    {prefix}meta;
drop function {prefix}partitions();
