DROP TABLE IF EXISTS {prefix}records;

DROP TABLE IF EXISTS {prefix}saga_records;

DROP TABLE IF EXISTS {prefix}saga_labels;

DROP TABLE IF EXISTS {prefix}saga_aliases;

DROP TABLE IF EXISTS {prefix}saga_history;

DROP TABLE IF EXISTS {prefix}sagas;
