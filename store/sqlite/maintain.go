package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/postrider/postrider/relay"
)

const (
	// dropRows is how many messages one transaction drops: a few milliseconds, in which no other writer can work.
	dropRows = 1_000
	// maintainFor bounds one call of Maintain.
	maintainFor = 20 * time.Second
	// sampleRows is how many messages the size of the log is estimated from.
	sampleRows = 1_000
)

const (
	// What every relay has passed, by partition. A relay that has not been in a partition yet has passed nothing there; one
	// that has not leased anything yet counts as well, for it has announced itself.
	passedSQL = `WITH known AS (SELECT relay FROM {prefix}cursors UNION SELECT relay FROM {prefix}relays)
		SELECT coalesce(min(coalesce(c.position, 0)), 0)
		FROM known LEFT JOIN {prefix}cursors c ON c.relay = known.relay AND c.partition = ?`
	// Of the oldest messages of a partition, those that are delivered and past retention.
	dropSQL = `DELETE FROM {prefix}log WHERE seq IN (
		SELECT seq FROM (SELECT seq, created_at FROM {prefix}log WHERE partition = ?1 AND seq <= ?2 ORDER BY seq LIMIT +?5)
		WHERE created_at <= ?3 OR seq <= ?4)`
	rangeSQL = `SELECT coalesce((SELECT min(seq) FROM {prefix}log), 0), coalesce((SELECT max(seq) FROM {prefix}log), 0)`
	// Evenly spaced messages, newest first, with their size: the values, and about 64 bytes for numbers, record and index.
	sampleSQL = `WITH RECURSIVE spaced(seq) AS (
			SELECT ?2 UNION ALL SELECT seq - ?3 FROM spaced WHERE seq - ?3 >= ?1)
		SELECT l.seq, length(payload) + length(headers) + length(id) + length(topic) + length(key) + length(type) +
			length(source) + length(subject) + length(tenant) + length(content_type) + length(correlation_id) +
			length(causation_id) + 64
		FROM spaced CROSS JOIN {prefix}log l ON l.seq = spaced.seq`
)

// Maintain implements relay.Maintainer. It drops messages in transactions of at most 1,000, for at most 20 seconds; freed
// pages are used again by coming messages. The size of the log is estimated from a sample of 1,000 messages.
func (s *Store) Maintain(ctx context.Context, keep relay.Retention) (relay.Maintained, error) {
	var out relay.Maintained
	deadline := s.now() + maintainFor.Microseconds()
	before := int64(math.MaxInt64) // keep.For of 0: whenever it was written
	if keep.For > 0 {
		before = s.now() - keep.For.Microseconds()
	}
	upTo, err := s.beyondSize(ctx, keep.MaxBytes)
	if err != nil {
		return out, err
	}
	for partition := range s.partitions {
		for {
			n, err := s.drop(ctx, partition, before, upTo)
			out.Dropped += n
			if errors.Is(err, ErrBusy) {
				out.Deferred = fmt.Sprintf("dropping delivered messages: %v", err)
				return out, nil
			}
			if err != nil {
				return out, err
			}
			if n < dropRows {
				break
			}
			if s.now() > deadline {
				out.Deferred = fmt.Sprintf("more delivered messages to drop than can be done in %s", maintainFor)
				return out, nil
			}
		}
	}
	return out, nil
}

// drop drops the oldest messages of a partition that every relay has passed, if they were written before a time or have a
// sequence up to upTo. It returns how many, dropRows if there may be more.
func (s *Store) drop(ctx context.Context, partition int, before, upTo int64) (n int64, err error) {
	err = s.write(ctx, "drop delivered messages", relaxed, func(t txn) error {
		var passed int64
		if err := t.get(ctx, passedSQL, []any{partition}, &passed); err != nil {
			return err
		}
		n, err = t.exec(ctx, dropSQL, partition, passed, before, upTo, dropRows)
		return err
	})
	return n, err
}

// beyondSize returns the sequence up to which messages lie above a size of the log, 0 if none do or limit is 0.
func (s *Store) beyondSize(ctx context.Context, limit int64) (upTo int64, err error) {
	if limit <= 0 {
		return 0, nil
	}
	err = s.read(ctx, "measure the log", func(t txn) error {
		upTo = 0
		var first, last int64
		if err := t.get(ctx, rangeSQL, nil, &first, &last); err != nil || last == 0 {
			return err
		}
		step := (last-first)/sampleRows + 1
		size := int64(0)
		return t.each(ctx, sampleSQL, []any{first, last, step}, func(rows *sql.Rows) error {
			var seq, bytes int64
			err := rows.Scan(&seq, &bytes)
			// Each sample stands for the messages down to the next older one.
			if size += bytes * step; size > limit && upTo == 0 {
				upTo = seq
			}
			return err
		})
	})
	return upTo, err
}
