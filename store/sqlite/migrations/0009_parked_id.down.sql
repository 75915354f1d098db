DROP INDEX {prefix}parked_id;
