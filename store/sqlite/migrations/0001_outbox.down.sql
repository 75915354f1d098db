DROP TABLE {prefix}dead;
DROP TABLE {prefix}held;
DROP TABLE {prefix}parked;
DROP TABLE {prefix}relays;
DROP TABLE {prefix}cursors;
DROP TABLE {prefix}log;
DROP TABLE {prefix}meta;
