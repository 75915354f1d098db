package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/relay"
)

// forgetOwnersAfter is how long an owner that is gone is still shown.
const forgetOwnersAfter = 24 * time.Hour

const (
	heartbeatSQL = `INSERT INTO {prefix}relays (relay, owner, host, version, started_at, seen_at, alive_until)
		VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6)
		ON CONFLICT (relay, owner) DO UPDATE SET host = excluded.host, version = excluded.version,
			seen_at = excluded.seen_at, alive_until = excluded.alive_until`
	// A lease that has ended is not renewed: its owner has stopped delivering, and somebody may be about to take it.
	renewSQL = `UPDATE {prefix}cursors SET lease_until = ?4 WHERE relay = ?1 AND owner = ?2 AND lease_until > ?3`
	// Those of other relays stay: they tell since when there is no process.
	forgetSQL = `DELETE FROM {prefix}relays WHERE relay = ? AND alive_until <= ?`
	aliveSQL  = `SELECT count(*) FROM {prefix}relays WHERE relay = ? AND alive_until > ?`
	viewSQL   = `SELECT partition, iif(lease_until > ?2, owner, ''), epoch FROM {prefix}cursors WHERE relay = ?1 AND epoch > 0
		ORDER BY partition`
)

// Heartbeat implements relay.LeaseStore.
func (s *Store) Heartbeat(ctx context.Context, name string, owner relay.Owner, ttl time.Duration) (relay.View, error) {
	var v relay.View
	err := s.write(ctx, "heartbeat", relaxed, func(t txn) error {
		v = relay.View{}
		if err := t.checkPartitions(ctx); err != nil {
			return err
		}
		until := t.now + ttl.Microseconds()
		if _, err := t.exec(ctx, heartbeatSQL, name, owner.ID, owner.Host, owner.Version, t.now, until); err != nil {
			return err
		}
		if _, err := t.exec(ctx, renewSQL, name, owner.ID, t.now, until); err != nil {
			return err
		}
		if _, err := t.exec(ctx, forgetSQL, name, t.now-forgetOwnersAfter.Microseconds()); err != nil {
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

const (
	// It begins a relay in all partitions at once.
	beginSQL = `INSERT INTO {prefix}cursors (relay, partition, position, settled_at)
		SELECT ?1, value, iif(?3, (SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = '{prefix}log'), 0), ?4
		FROM json_each(?2) WHERE true ON CONFLICT DO NOTHING`
	acquireSQL = `UPDATE {prefix}cursors SET owner = ?3, epoch = epoch + 1, lease_until = ?5
		WHERE relay = ?1 AND partition = ?2 AND (owner = '' OR lease_until <= ?4) RETURNING epoch, position`
)

// Acquire implements relay.LeaseStore.
func (s *Store) Acquire(ctx context.Context, name string, owner relay.Owner, partitions []int, ttl time.Duration,
	start relay.Start) ([]relay.Lease, error) {
	var out []relay.Lease
	err := s.write(ctx, "acquire leases", relaxed, func(t txn) error {
		out = nil
		if err := t.checkPartitions(ctx); err != nil {
			return err
		}
		if _, err := t.exec(ctx, beginSQL, name, list(numbers(s.number())), start == relay.FromNow, t.now); err != nil {
			return err
		}
		for _, p := range partitions {
			if err := s.checkPartition(p); err != nil {
				return err
			}
			l := relay.Lease{Partition: p, Owner: owner.ID}
			err := t.get(ctx, acquireSQL, []any{name, p, owner.ID, t.now, t.now + ttl.Microseconds()},
				&l.Epoch, &l.Cursor.Position)
			if errors.Is(err, sql.ErrNoRows) {
				continue // somebody holds it
			}
			if err != nil {
				return err
			}
			out = append(out, l)
		}
		return nil
	})
	return out, err
}

func numbers(n int) []int {
	all := make([]int, n)
	for p := range all {
		all[p] = p
	}
	return all
}

func (s *Store) checkPartition(p int) error {
	if p < 0 || p >= s.number() {
		return fmt.Errorf("there is no partition %d, the outbox has %d", p, s.number())
	}
	return nil
}

const (
	releaseSQL = `UPDATE {prefix}cursors SET owner = '', lease_until = 0
		WHERE relay = ? AND partition = ? AND owner = ? AND epoch = ?`
	releaseAllSQL = `UPDATE {prefix}cursors SET owner = '', lease_until = 0 WHERE relay = ? AND owner = ?`
	goneSQL       = `UPDATE {prefix}relays SET alive_until = min(alive_until, ?) WHERE relay = ? AND owner = ?`
)

// Release implements relay.LeaseStore.
func (s *Store) Release(ctx context.Context, name string, leases []relay.Lease) error {
	return s.write(ctx, "release leases", relaxed, func(t txn) error {
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
	return s.write(ctx, "leave", relaxed, func(t txn) error {
		if _, err := t.exec(ctx, releaseAllSQL, name, owner.ID); err != nil {
			return err
		}
		_, err := t.exec(ctx, goneSQL, t.now, name, owner.ID)
		return err
	})
}
