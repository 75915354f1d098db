DROP TABLE IF EXISTS {prefix}attempts;

DROP TABLE IF EXISTS {prefix}redrives;

DROP TABLE IF EXISTS {prefix}edits;

DROP TABLE IF EXISTS {prefix}dead;

DROP TABLE IF EXISTS {prefix}held;

DROP TABLE IF EXISTS {prefix}parked;

DROP TABLE IF EXISTS {prefix}relays;

DROP TABLE IF EXISTS {prefix}cursors;

DROP TABLE IF EXISTS {prefix}log;

DROP TABLE IF EXISTS {prefix}meta;
