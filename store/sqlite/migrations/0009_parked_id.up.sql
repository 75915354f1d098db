-- A relay's parked messages by ID, in order: with seq, the planner prefers it to the primary key.
CREATE INDEX {prefix}parked_id ON {prefix}parked (relay, id, seq);
