package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/store"
)

// removeOwnersAfter is how long an owner that is gone is still shown.
const removeOwnersAfter = 24 * time.Hour

const (
	// ?7 is 1 for a heartbeat, which makes its sender a member; ?8 is the generation of its filter, ?9 the state of its destination.
	heartbeatSQL = `INSERT INTO {prefix}relays (relay, owner, host, version, started_at, seen_at, alive_until, ttl, member, generation, destination)
		VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?5 + ?6, ?6, ?7, ?8, ?9)
		ON CONFLICT (relay, owner) DO UPDATE SET host = excluded.host, version = excluded.version, seen_at = excluded.seen_at,
			alive_until = excluded.alive_until, ttl = excluded.ttl, member = max(member, excluded.member),
			generation = excluded.generation, destination = iif(excluded.member, excluded.destination, destination)`
	// Rows of other relays stay: they show since when there has been no process.
	removeOwnersSQL = `DELETE FROM {prefix}relays WHERE relay = ? AND alive_until <= ?`
	aliveSQL        = `SELECT count(*) FROM {prefix}relays WHERE relay = ? AND member AND alive_until > ?`
	// The leases that hold. ?2 is the incarnation, ?3 now.
	viewSQL = `SELECT c.partition, o.owner, c.token
		FROM {prefix}cursors c JOIN {prefix}relays o ON o.relay = c.relay AND o.owner = c.owner AND o.alive_until > ?3
			AND c.incarnation IN ('', ?2)
		WHERE c.relay = ?1 ORDER BY c.partition`
)

// Heartbeat implements store.Leases.
func (s *Store) Heartbeat(ctx context.Context, name string, owner store.Owner, ttl time.Duration) (store.View, error) {
	var v store.View
	err := s.write(ctx, "heartbeat", relaxed, func(t txn) error {
		v = store.View{}
		if err := t.checkPartitions(ctx); err != nil {
			return err
		}
		if err := t.register(ctx, name, owner, ttl, true); err != nil {
			return err
		}
		if _, err := t.exec(ctx, removeOwnersSQL, name, t.now-removeOwnersAfter.Microseconds()); err != nil {
			return err
		}
		if err := t.get(ctx, aliveSQL, []any{name, t.now}, &v.Alive); err != nil {
			return err
		}
		filter, err := t.filter(ctx, name)
		if err != nil {
			return err
		}
		v.Filter = filter
		return t.each(ctx, viewSQL, []any{name, s.incarnation.text, t.now}, func(rows *sql.Rows) error {
			var p store.PartitionView
			err := rows.Scan(&p.Partition, &p.Owner, &p.Token)
			v.Partitions = append(v.Partitions, p)
			return err
		})
	})
	return v, err
}

const (
	// Begins a relay or consumer, kind ?6, in all partitions at once; ?3: at the end of the log.
	beginSQL = `INSERT INTO {prefix}cursors (relay, partition, position, settled_at, incarnation, kind)
		SELECT ?1, value, iif(?3, (SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = '{prefix}log'), 0), ?4, ?5, ?6
		FROM json_each(?2) WHERE true ON CONFLICT DO NOTHING`
	// What another incarnation granted or released is free if no other process is alive, or if the longest TTL of a process has
	// passed since this incarnation was first used.
	lostIsFreeSQL = `SELECT NOT EXISTS (SELECT 1 FROM {prefix}relays WHERE relay = ?1 AND owner <> ?2 AND alive_until > ?3)
		OR (` + beganAtSQL + `) + (SELECT max(ttl) FROM {prefix}relays WHERE relay = ?1) <= ?3`
	// ?6 now, ?7 whether a lost lease is free. store.Leases has the rules.
	acquireSQL = `UPDATE {prefix}cursors SET owner = ?3, token = ?4, incarnation = ?5
		WHERE relay = ?1 AND partition = ?2 AND iif(incarnation IN ('', ?5),
			owner IN ('', ?3) OR NOT EXISTS (SELECT 1 FROM {prefix}relays o
				WHERE o.relay = ?1 AND o.owner = {prefix}cursors.owner AND o.alive_until > ?6),
			?7)
		RETURNING position, number`
)

// Acquire implements store.Leases.
func (s *Store) Acquire(ctx context.Context, name string, owner store.Owner, req store.AcquireRequest) ([]store.Lease, error) {
	var out []store.Lease
	err := s.write(ctx, "acquire leases", relaxed, func(t txn) error {
		out = nil
		if err := t.checkPartitions(ctx); err != nil {
			return err
		}
		if err := t.register(ctx, name, owner, req.TTL, false); err != nil {
			return err
		}
		if err := t.begin(ctx, name, req.Kind, req.FromNow); err != nil {
			return err
		}
		var lostIsFree bool
		if err := t.get(ctx, lostIsFreeSQL, []any{name, owner.ID, t.now}, &lostIsFree); err != nil {
			return err
		}
		filter, err := t.filter(ctx, name)
		if err != nil {
			return err
		}
		for _, c := range req.Claims {
			l, granted, err := t.acquire(ctx, name, owner, c, req.MaxHeld, lostIsFree || c.Resume)
			if err != nil {
				return err
			}
			if granted {
				l.Filter = filter
				out = append(out, l)
			}
		}
		return nil
	})
	return out, err
}

const kindOfSQL = `SELECT kind FROM {prefix}cursors WHERE relay = ? LIMIT 1`

// begin registers a name with a kind, in all partitions at once, unless it is known. It fails if the name has another kind than
// want, "" for any.
func (t txn) begin(ctx context.Context, name string, want store.Kind, fromNow bool) error {
	kind := cmp.Or(want, store.KindRelay)
	_, err := t.exec(ctx, beginSQL, name, list(numbers(t.s.number())), fromNow && kind == store.KindRelay, t.now,
		t.s.incarnation.text, string(kind))
	if err == nil {
		err = t.get(ctx, kindOfSQL, []any{name}, &kind)
	}
	return cmp.Or(err, kind.Check(want))
}

// acquire grants one lease if it is free.
func (t txn) acquire(ctx context.Context, name string, owner store.Owner, c store.LeaseClaim, maxHeld int, lostIsFree bool) (l store.Lease, granted bool, err error) {
	if err := t.s.checkPartition(c.Partition); err != nil {
		return l, false, err
	}
	if c.Token == "" {
		return l, false, fmt.Errorf("partition %d is claimed without a token", c.Partition)
	}
	l = store.Lease{Partition: c.Partition, Owner: owner.ID, Token: c.Token}
	args := []any{name, c.Partition, owner.ID, c.Token, t.s.incarnation.text, t.now, lostIsFree}
	err = t.get(ctx, acquireSQL, args, &l.Cursor.Position, &l.Settled)
	if errors.Is(err, sql.ErrNoRows) {
		return l, false, nil
	}
	if err == nil {
		l.Parked, err = t.parkedIn(ctx, name, c.Partition, l.Cursor.Position, maxHeld)
	}
	return l, err == nil, err
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
	releaseSQL = `UPDATE {prefix}cursors SET owner = '', token = ''
		WHERE relay = ? AND partition = ? AND token = ? AND incarnation = ? AND owner <> ''`
	releaseAllSQL = `UPDATE {prefix}cursors SET owner = '', token = '', incarnation = ?3 WHERE relay = ?1 AND owner = ?2 AND incarnation IN ('', ?3)`
	goneSQL       = `UPDATE {prefix}relays SET alive_until = min(alive_until, ?), generation = 0 WHERE relay = ? AND owner = ?`
)

// Release implements store.Leases.
func (s *Store) Release(ctx context.Context, name string, leases []store.LeaseRef) error {
	return s.write(ctx, "release leases", relaxed, func(t txn) error {
		for _, l := range leases {
			if _, err := t.exec(ctx, releaseSQL, name, l.Partition, l.Token, s.incarnation.text); err != nil {
				return err
			}
		}
		return nil
	})
}

// Leave implements store.Leases.
func (s *Store) Leave(ctx context.Context, name string, owner store.Owner) error {
	return s.write(ctx, "leave", relaxed, func(t txn) error {
		if _, err := t.exec(ctx, releaseAllSQL, name, owner.ID, s.incarnation.text); err != nil {
			return err
		}
		_, err := t.exec(ctx, goneSQL, t.now, name, owner.ID)
		return err
	})
}

const leaseSQL = `SELECT number, content FROM {prefix}cursors
	WHERE relay = ? AND partition = ? AND token = ? AND incarnation = ? AND owner <> ''`

// lastSettlement is the number and the digest of the last settlement applied to a partition.
type lastSettlement struct {
	number  int64
	content []byte
}

// lease returns the last settlement of a partition if the lease holds. Errors: store.ErrLeaseLost.
func (t txn) lease(ctx context.Context, name string, l store.LeaseRef) (last lastSettlement, err error) {
	err = t.get(ctx, leaseSQL, []any{name, l.Partition, l.Token, t.s.incarnation.text}, &last.number, &last.content)
	if errors.Is(err, sql.ErrNoRows) {
		err = store.ErrLeaseLost
	}
	return last, err
}
