package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

var _ store.Maintainer = (*Store)(nil)

const (
	// dropRows is how many messages one transaction drops: about 5 ms, during which no other writer can work.
	dropRows = 1_000
	// dropPartitions is how many partitions one transaction drops from. Messages of different partitions share pages: dropping them
	// together touches each page once.
	dropPartitions = 64
	// maintainFor limits one call of Maintain.
	maintainFor = 20 * time.Second
	// sampleRows is from how many messages the size of the log is estimated.
	sampleRows = 1_000
)

const (
	// The position that every relay has passed, by partition. A relay that has not been in a partition yet has passed nothing there;
	// one that has announced itself but not leased anything yet counts as well.
	passedSQL = `WITH known AS (SELECT relay FROM {prefix}cursors UNION SELECT relay FROM {prefix}relays EXCEPT ` + consumerNamesSQL + `)
		SELECT wanted.value, min(coalesce(c.position, 0)) AS passed
		FROM json_each(?1) wanted CROSS JOIN known
			LEFT JOIN {prefix}cursors c ON c.relay = known.relay AND c.partition = wanted.value
		GROUP BY wanted.value HAVING passed > 0`
	// passedOrNoneSQL is passedSQL, with everything if there is no relay.
	passedOrNoneSQL = passedSQL + ` UNION ALL SELECT value, 9223372036854775807 FROM json_each(?1)
		WHERE NOT EXISTS (SELECT 1 FROM known)`
	heldSQL = `SELECT EXISTS (SELECT 1 FROM {prefix}records WHERE kind = '` + store.KindLegalHold + `')`
	// Of the oldest messages of each partition, those that are delivered and past retention. The parameters: ?1 time of writing, ?2
	// sequence up to which size requires it, ?3 limit per partition; then the parts.
	dropSQL     = `DELETE FROM {prefix}log WHERE seq IN (SELECT seq FROM (%s) WHERE created_at <= ?1 OR seq <= ?2)`
	dropPartSQL = `SELECT * FROM (SELECT seq, created_at FROM {prefix}log
		WHERE partition = %d AND seq <= %d ORDER BY seq LIMIT ?3)`
	rangeSQL = `SELECT coalesce((SELECT min(seq) FROM {prefix}log), 0), coalesce((SELECT max(seq) FROM {prefix}log), 0)`
	// Evenly spaced messages, newest first, with their size: the values, plus about 64 bytes for numbers, record and index.
	sampleSQL = `WITH RECURSIVE spaced(seq) AS (
			SELECT ?2 UNION ALL SELECT seq - ?3 FROM spaced WHERE seq - ?3 >= ?1)
		SELECT l.seq, length(payload) + length(headers) + length(id) + length(topic) + length(key) + length(type) +
			length(source) + length(subject) + length(tenant) + length(content_type) + length(correlation_id) +
			length(causation_id) + 64
		FROM spaced CROSS JOIN {prefix}log l ON l.seq = spaced.seq`
)

// Maintain implements store.Maintainer. It drops messages in transactions of at most 1,000, for at most 20 seconds; later
// messages reuse the freed pages. The size of the log is estimated from a sample of 1,000 messages.
func (s *Store) Maintain(ctx context.Context, keep store.Retention) (store.Maintained, error) {
	var out store.Maintained
	switch err := cmp.Or(s.purgeRedrives(ctx, keep.Redrives), s.dropDecisions(ctx), s.removeUnrouted(ctx), s.place(ctx)); {
	case errors.Is(err, ErrBusy):
		out.Deferred = fmt.Sprintf("removing redrives, decisions and counts that are past their time, and moving messages to partitions that exist: %v", err)
		return out, nil
	case err != nil:
		return out, err
	}
	deadline := s.now() + maintainFor.Microseconds()
	before := int64(math.MaxInt64) // keep.For of 0: no matter when it was written
	if keep.For > 0 {
		before = s.now() - keep.For.Microseconds()
	}
	upTo, err := s.beyondSize(ctx, keep.MaxBytes)
	if err != nil {
		return out, err
	}
	for first := 0; first < s.number(); first += dropPartitions {
		var partitions []int
		for p := first; p < min(first+dropPartitions, s.number()); p++ {
			partitions = append(partitions, p)
		}
		for n := int64(-1); n != 0; out.Dropped += n {
			if s.now() > deadline {
				out.Deferred = fmt.Sprintf("more delivered messages to drop than can be done in %s", maintainFor)
				return out, nil
			}
			if n, err = s.drop(ctx, partitions, before, upTo, keep); errors.Is(err, ErrBusy) {
				out.Deferred = fmt.Sprintf("dropping delivered messages: %v", err)
				return out, nil
			}
			if err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

// drop drops the oldest messages of some partitions that every relay has passed, if they
// were written before a time or their sequence is at most upTo. It returns how many, 0 at the end or while a legal hold is active.
func (s *Store) drop(ctx context.Context, partitions []int, before, upTo int64, keep store.Retention) (n int64, err error) {
	err = s.write(ctx, "drop delivered messages", relaxed, func(t txn) error {
		n = 0
		var held bool
		if err := t.get(ctx, heldSQL, nil, &held); err != nil || held {
			return err
		}
		var parts []string
		passedBy := passedSQL
		if keep.WithoutRelay {
			passedBy = passedOrNoneSQL
		}
		err := t.each(ctx, passedBy, []any{list(partitions)}, func(rows *sql.Rows) error {
			var partition, passed int64
			err := rows.Scan(&partition, &passed)
			if keep.KeepFrom > 0 {
				passed = min(passed, keep.KeepFrom-1)
			}
			parts = append(parts, fmt.Sprintf(dropPartSQL, partition, passed))
			return err
		})
		if err != nil || len(parts) == 0 {
			return err
		}
		n, err = t.exec(ctx, fmt.Sprintf(dropSQL, strings.Join(parts, ` UNION ALL `)), before, upTo, dropRows/len(parts))
		return err
	})
	return n, err
}

// beyondSize returns the sequence up to which messages exceed a size of the log, 0 if none do or limit is 0.
func (s *Store) beyondSize(ctx context.Context, limit int64) (upTo int64, err error) {
	if limit <= 0 {
		return 0, nil
	}
	err = s.read(ctx, "measure the log", func(t txn) error {
		upTo, err = stored.BeyondSize(ctx, t.query, rangeSQL, sampleSQL, sampleRows, limit)
		return err
	})
	return upTo, err
}
