-- oldest program: 9
-- oldest publisher: 6
-- locks: watermark_moves
-- What the log itself said of the message at a watermark, and which messages a move consumed. The moves that are kept are now
-- the last 1,000 (inbox.RememberedMoves); move n+1 deletes move n-999.
alter table {prefix}watermark_moves
    add column mark text not null default '', -- of the message at position; '': not known
    add column consumed bytea;                -- digests of the messages that this move consumed, 8 bytes for each
