drop table {prefix}dead, {prefix}held, {prefix}parked, {prefix}relays, {prefix}cursors, {prefix}leases, {prefix}log,
    {prefix}meta;
drop function {prefix}partitions();
