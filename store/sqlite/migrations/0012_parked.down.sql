DROP INDEX {prefix}parked_next;
DROP INDEX {prefix}held_since;
DELETE FROM {prefix}decisions WHERE seq <> 0;
ALTER TABLE {prefix}decisions DROP COLUMN seq;
