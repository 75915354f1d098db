package mysqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/relay"
)

// forgetOwnersAfter is how long an owner that is gone is still shown.
const forgetOwnersAfter = 24 * time.Hour

const (
	heartbeatSQL = `INSERT INTO {prefix}relays (relay, owner, host, version, started_at, seen_at, alive_until)
		VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6)
		ON DUPLICATE KEY UPDATE host = ?3, version = ?4, seen_at = ?5, alive_until = ?6`
	// A lease that has ended is not renewed: its owner has stopped delivering, and somebody may be about to take it.
	leasesSQL = `SELECT partition_id FROM {prefix}cursors WHERE relay = ? AND owner = ? AND lease_until > ? ORDER BY partition_id`
	renewSQL  = `UPDATE {prefix}cursors SET lease_until = ?4 WHERE relay = ?1 AND partition_id IN ?5 AND owner = ?2 AND lease_until > ?3`
	// Those of other relays stay: they tell since when there is no process.
	// They are deleted by name, since a search that locks would wait for the heartbeats of others.
	goneOwnersSQL = `SELECT owner FROM {prefix}relays WHERE relay = ? AND alive_until <= ?`
	forgetSQL     = `DELETE FROM {prefix}relays WHERE relay = ? AND owner IN ? AND alive_until <= ?`
	aliveSQL      = `SELECT COUNT(*) FROM {prefix}relays WHERE relay = ? AND alive_until > ?`
	viewSQL       = `SELECT partition_id, IF(lease_until > ?2, owner, ''), epoch FROM {prefix}cursors WHERE relay = ?1 AND epoch > 0
		ORDER BY partition_id`
)

// Heartbeat implements relay.LeaseStore.
func (s *Store) Heartbeat(ctx context.Context, name string, owner relay.Owner, ttl time.Duration) (relay.View, error) {
	var v relay.View
	err := s.write(ctx, "heartbeat of relay "+name, func(t txn) error {
		v = relay.View{}
		if err := t.checkPartitions(); err != nil {
			return err
		}
		until := t.now + ttl.Microseconds()
		if _, err := t.exec(ctx, heartbeatSQL, name, owner.ID, owner.Host, owner.Version, t.now, until); err != nil {
			return err
		}
		held, err := column[int](ctx, t, leasesSQL, name, owner.ID, t.now)
		if err == nil && len(held) > 0 {
			_, err = t.exec(ctx, renewSQL, name, owner.ID, t.now, until, held)
		}
		if err != nil {
			return err
		}
		if err := t.forgetOwners(ctx, name); err != nil {
			return err
		}
		if err := t.get(ctx, aliveSQL, []any{name, t.now}, &v.Alive); err != nil {
			return err
		}
		return t.each(ctx, viewSQL, []any{name, t.now}, func(rows *sql.Rows) error {
			var p relay.PartitionView
			err := rows.Scan(&p.Partition, &p.Owner, &p.Epoch)
			v.Partitions = append(v.Partitions, p)
			return err
		})
	})
	return v, err
}

// forgetOwners forgets those that have been gone for long.
func (t txn) forgetOwners(ctx context.Context, name string) error {
	before := t.now - forgetOwnersAfter.Microseconds()
	gone, err := column[string](ctx, t, goneOwnersSQL, name, before)
	if err == nil && len(gone) > 0 {
		_, err = t.exec(ctx, forgetSQL, name, gone, before)
	}
	return err
}

const (
	begunSQL = `SELECT COUNT(*) FROM {prefix}cursors WHERE relay = ?`
	// freeSQL locks leases in the order of the partitions.
	freeSQL = `SELECT partition_id, owner, epoch, lease_until, position, gaps FROM {prefix}cursors
		WHERE relay = ? AND partition_id IN ? ORDER BY partition_id FOR UPDATE`
	acquireSQL = `UPDATE {prefix}cursors SET owner = ?3, epoch = epoch + 1, lease_until = ?4 WHERE relay = ?1 AND partition_id IN ?2`
)

// Acquire implements relay.LeaseStore.
func (s *Store) Acquire(ctx context.Context, name string, owner relay.Owner, partitions []int, ttl time.Duration,
	start relay.Start) ([]relay.Lease, error) {
	for _, p := range partitions {
		if err := s.checkPartition(p); err != nil {
			return nil, fmt.Errorf("acquire: %w", err)
		}
	}
	if err := s.begin(ctx, name, start); err != nil {
		return nil, err
	}
	var out []relay.Lease
	err := s.write(ctx, "acquire partitions of relay "+name, func(t txn) error {
		out = nil
		if err := t.checkPartitions(); err != nil {
			return err
		}
		var free []int
		err := t.each(ctx, freeSQL, []any{name, partitions}, func(rows *sql.Rows) error {
			var holder string
			var until int64
			l := relay.Lease{Owner: owner.ID}
			err := rows.Scan(&l.Partition, &holder, &l.Epoch, &until, &l.Cursor.Position, &l.Cursor.Snapshot)
			if holder == "" || until <= t.now {
				l.Epoch++
				out, free = append(out, l), append(free, l.Partition)
			}
			return err
		})
		if err != nil || len(free) == 0 {
			return err
		}
		_, err = t.exec(ctx, acquireSQL, name, free, owner.ID, t.now+ttl.Microseconds())
		return err
	})
	return out, err
}

const (
	floorSQL = `SELECT value FROM {prefix}meta WHERE name = 'floor'`
	beginSQL = `INSERT IGNORE INTO {prefix}cursors (relay, partition_id, position, gaps, settled_at) VALUES (?, ?, ?, ?, ?)`
	// placesSQL reads where relays stand; a consumer's cursors stand at the end of the log.
	placesSQL = `SELECT partition_id, position, gaps FROM {prefix}cursors WHERE position <> ?`
	seqsSQL   = `SELECT seq FROM {prefix}log WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT 100000`
)

// begin makes a relay's cursors in all partitions, unless they exist. While it does, nobody drops messages.
func (s *Store) begin(ctx context.Context, name string, start relay.Start) error {
	var begun int
	err := s.pooled().get(ctx, begunSQL, []any{name}, &begun)
	if err != nil || begun >= s.number() {
		return s.cfg.explain("begin relay "+name, err)
	}
	at := place{}
	if start == relay.FromNow {
		if at, err = s.present(ctx, math.MaxInt64); err != nil {
			return s.cfg.explain("begin relay "+name, err)
		}
	}
	return s.write(ctx, "begin relay "+name, func(t txn) error {
		if err := t.checkPartitions(); err != nil {
			return err
		}
		var floor int64
		if err := t.get(ctx, floorSQL+` FOR UPDATE`, nil, &floor); err != nil {
			return err
		}
		for p := range s.number() {
			missing := at.gaps.beyond(floor)
			if _, err := t.exec(ctx, beginSQL, name, p, max(at.position, floor), missing.encode(), t.now); err != nil {
				return err
			}
		}
		return nil
	})
}

// place is a position with the gaps before it.
type place struct {
	position int64
	gaps     gaps
}

// present is where the log ends, at most upTo, with the sequences that are missing before: messages of transactions that
// are still open. It reads all sequences from where a relay has found none missing, or from the beginning if there is no
// relay: some three million a second.
func (s *Store) present(ctx context.Context, upTo int64) (at place, err error) {
	t := s.pooled()
	if err := t.get(ctx, floorSQL, nil, &at.position); err != nil {
		return at, err
	}
	err = t.each(ctx, placesSQL, []any{int64(inbox.EndOfLog)}, func(rows *sql.Rows) error {
		_, solid, err := scanPlace(rows)
		at.position = max(at.position, min(solid, upTo))
		return err
	})
	for more := true; more && err == nil; {
		more = false
		err = t.each(ctx, seqsSQL, []any{at.position, upTo}, func(rows *sql.Rows) error {
			var seq int64
			err := rows.Scan(&seq)
			if seq > at.position+1 {
				at.gaps = at.gaps.add(span{at.position + 1, seq - 1})
			}
			at.position, more = seq, true
			return err
		})
	}
	return at, err
}

// CursorAt returns a cursor behind which come all messages with a sequence above position, and those with a lower one that
// are not committed yet. It reads sequences as a relay does that begins with what is published from now on.
func (s *Store) CursorAt(ctx context.Context, position int64) (relay.Cursor, error) {
	at, err := s.present(ctx, position)
	return relay.Cursor{Position: max(at.position, position), Snapshot: at.gaps.encode()}, s.cfg.explain("look for a place in the log", err)
}

// scanPlace reads a row of placesSQL and returns up to where nothing is missing that may still come.
func scanPlace(rows *sql.Rows) (partition int, solid int64, err error) {
	var position int64
	var text string
	if err := rows.Scan(&partition, &position, &text); err != nil {
		return 0, 0, err
	}
	missing, err := parseGaps(text)
	return partition, missing.solid(position), err
}

const (
	releaseSQL = `UPDATE {prefix}cursors SET owner = '', lease_until = 0
		WHERE relay = ? AND partition_id = ? AND owner = ? AND epoch = ?`
	releaseAllSQL = `UPDATE {prefix}cursors SET owner = '', lease_until = 0 WHERE relay = ? AND partition_id IN ? AND owner = ?`
	ownedSQL      = `SELECT partition_id FROM {prefix}cursors WHERE relay = ? AND owner = ? ORDER BY partition_id`
	goneSQL       = `UPDATE {prefix}relays SET alive_until = LEAST(alive_until, ?) WHERE relay = ? AND owner = ?`
)

// Release implements relay.LeaseStore.
func (s *Store) Release(ctx context.Context, name string, leases []relay.Lease) error {
	leases = slices.SortedFunc(slices.Values(leases), func(a, b relay.Lease) int { return a.Partition - b.Partition })
	return s.write(ctx, "release partitions of relay "+name, func(t txn) error {
		for _, l := range leases {
			if _, err := t.exec(ctx, releaseSQL, name, l.Partition, l.Owner, l.Epoch); err != nil {
				return err
			}
		}
		return nil
	})
}

// Leave implements relay.LeaseStore.
func (s *Store) Leave(ctx context.Context, name string, owner relay.Owner) error {
	return s.write(ctx, "leave relay "+name, func(t txn) error {
		held, err := column[int](ctx, t, ownedSQL, name, owner.ID)
		if err == nil && len(held) > 0 {
			_, err = t.exec(ctx, releaseAllSQL, name, held, owner.ID)
		}
		if err == nil {
			_, err = t.exec(ctx, goneSQL, t.now, name, owner.ID)
		}
		return err
	})
}

// checkPartitions says with an error that the number of partitions is not the one that this Store was opened with.
func (t txn) checkPartitions() error {
	if t.partitions != t.s.number() {
		return fmt.Errorf("%w: from %d to %d", relay.ErrRepartitioned, t.s.number(), t.partitions)
	}
	return nil
}
