UPDATE {prefix}redrives SET state = 'cancelled', cancelled_by = 'postrider' WHERE state = 'failed';
ALTER TABLE {prefix}redrives DROP COLUMN cause;
ALTER TABLE {prefix}redrives DROP COLUMN failures;
