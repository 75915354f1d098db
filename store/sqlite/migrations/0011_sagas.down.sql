DROP TABLE {prefix}records;

DROP TABLE {prefix}saga_records;

DROP TABLE {prefix}saga_labels;

DROP TABLE {prefix}saga_aliases;

DROP TABLE {prefix}saga_history;

DROP TABLE {prefix}sagas;
