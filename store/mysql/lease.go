package mysqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// removeOwnersAfter is how long a process that is gone is still shown.
const removeOwnersAfter = 24 * time.Hour

const (
	// heartbeatSQL writes nothing if the number of partitions is not ?5, or if there are topics ?3 and the process is not
	// registered with them.
	heartbeatSQL = `INSERT INTO {prefix}relays (relay, owner, host, version, started_at, seen_at, alive_until, ttl, member, destination)
		SELECT ?1, ?2, ?6, ?7, {now}, {now}, {now} + ?8, ?8, TRUE, ?9 FROM {prefix}meta WHERE name = 'partitions' AND value = ?5
			AND (?3 = '' OR ` + registeredSQL + `)
		ON DUPLICATE KEY UPDATE host = ?6, version = ?7, seen_at = {now}, alive_until = {now} + ?8, ttl = ?8, member = TRUE, destination = ?9`
	// viewSQL reads the numbers of processes that are alive and of those gone for ?2, with the incarnation (-1), the leases, and
	// the filters in effect (-2).
	viewSQL = `SELECT -1, (SELECT COUNT(*) FROM {prefix}relays WHERE relay = ?1 AND member AND alive_until > {now}),
			(SELECT COUNT(*) FROM {prefix}relays WHERE relay = ?1 AND alive_until <= {now} - ?2), COALESCE({present}, ''), ''
		UNION ALL SELECT c.partition_id, 0, 0, c.owner, c.token
		FROM {prefix}cursors c JOIN {prefix}relays r ON r.relay = c.relay AND r.owner = c.owner AND r.alive_until > {now}
		WHERE c.relay = ?1 AND c.owner <> '' AND c.incarnation = {present}
		UNION ALL SELECT -2, 0, 0, f.relay, f.topics FROM (` + filtersSQL + `) f`
	// Processes of other relays stay: they show since when a relay has had no process.
	// Rows are deleted by name, since a locking search would wait for the heartbeats of others.
	goneOwnersSQL   = `SELECT owner FROM {prefix}relays WHERE relay = ?1 AND alive_until <= {now} - ?2`
	removeOwnersSQL = `DELETE FROM {prefix}relays WHERE relay = ?1 AND owner IN ?3 AND alive_until <= {now} - ?2`
)

// Heartbeat implements store.Leases. It is two statements, each its own transaction. It writes only the row of the process,
// so it waits for no other work.
func (s *Store) Heartbeat(ctx context.Context, name string, owner store.Owner, ttl time.Duration) (store.View, error) {
	doing := "heartbeat of relay " + name
	topics, err := stored.Topics(owner.Topics)
	if err != nil {
		return store.View{}, err
	}
	destination, err := stored.Report(owner)
	if err != nil {
		return store.View{}, err
	}
	heartbeat := func() (n int64, err error) {
		err = s.again(ctx, func() (err error) {
			n, err = s.pooled().exec(ctx, heartbeatSQL, name, owner.ID, topics, filterKept, s.number(), owner.Host, owner.Version,
				ttl.Microseconds(), destination)
			return err
		})
		return n, err
	}
	n, err := heartbeat()
	if err == nil && n == 0 {
		t := s.pooled()
		if err = t.look(ctx); err == nil {
			err = t.checkPartitions()
		}
		if err == nil && topics != "" {
			if err = s.register(ctx, name, owner, topics, ttl); err == nil {
				n, err = heartbeat()
			}
		}
		if err == nil && n == 0 {
			err = errGone
		}
	}
	if err != nil {
		return store.View{}, s.cfg.explain(doing, err)
	}
	v, gone, err := s.pooled().view(ctx, name)
	if err == nil && gone > 0 {
		err = s.again(ctx, func() error { return s.pooled().removeOwners(ctx, name) })
	}
	return v, s.cfg.explain(doing, err)
}

// view reads which processes are alive, which leases they hold, and how many processes have been gone for long.
func (t txn) view(ctx context.Context, name string) (v store.View, gone int, err error) {
	filters := make(map[string][]string)
	err = t.each(ctx, viewSQL, []any{name, removeOwnersAfter.Microseconds(), filterKept}, func(rows *sql.Rows) error {
		var p store.PartitionView
		var alive, over int
		if err := rows.Scan(&p.Partition, &alive, &over, &p.Owner, &p.Token); err != nil {
			return err
		}
		if p.Partition >= 0 {
			v.Partitions = append(v.Partitions, p)
			return nil
		}
		if p.Partition == -2 {
			topics, err := stored.ParseTopics(p.Token)
			filters[p.Owner] = topics
			return err
		}
		if v.Alive, gone = alive, over; p.Owner != "" {
			t.s.served.note(t.s, p.Owner)
		}
		return nil
	})
	v.Filter = store.TopicFilterOf(name, filters)
	slices.SortFunc(v.Partitions, func(a, b store.PartitionView) int { return a.Partition - b.Partition })
	return v, gone, err
}

// removeOwners removes processes that have been gone for removeOwnersAfter.
func (t txn) removeOwners(ctx context.Context, name string) error {
	before := removeOwnersAfter.Microseconds()
	gone, err := stored.Column[string](ctx, t.query, goneOwnersSQL, name, before)
	if err == nil && len(gone) > 0 {
		_, err = t.exec(ctx, removeOwnersSQL, name, before, gone)
	}
	return err
}

const (
	begunSQL = `SELECT COUNT(*) FROM {prefix}cursors WHERE relay = ?`
	// freeSQL locks leases in partition order. It skips a locked lease, which is being settled or decided about; the next
	// heartbeat, which waits for nobody, asks for it again.
	freeSQL = `SELECT partition_id, kind, owner, incarnation, position, gaps, number FROM {prefix}cursors
		WHERE relay = ? AND partition_id IN ? ORDER BY partition_id FOR UPDATE SKIP LOCKED`
	ownersOfSQL = `SELECT owner, ttl, alive_until FROM {prefix}relays WHERE relay = ?`
	aliveSQL    = `INSERT INTO {prefix}relays (relay, owner, host, version, started_at, seen_at, alive_until, ttl, member)
		VALUES (?1, ?2, ?3, ?4, {now}, {now}, {now} + ?5, ?5, FALSE)
		ON DUPLICATE KEY UPDATE host = ?3, version = ?4, seen_at = {now}, alive_until = {now} + ?5, ttl = ?5`
	// acquireSQL grants leases; %s are rows of acquireRow.
	acquireSQL = `UPDATE (%s) i STRAIGHT_JOIN {prefix}cursors c ON c.relay = ?1 AND c.partition_id = i.partition_id
		SET c.owner = ?2, c.token = i.token, c.incarnation = ?3`
	acquireRow = `SELECT ? AS partition_id, ? AS token`
)

// Acquire implements store.Leases. A lease whose row is currently locked is not granted.
func (s *Store) Acquire(ctx context.Context, name string, owner store.Owner, req store.AcquireRequest) ([]store.Lease, error) {
	for _, c := range req.Claims {
		if err := s.checkPartition(c.Partition); err != nil {
			return nil, fmt.Errorf("acquire: %w", err)
		}
	}
	if err := s.begin(ctx, name, req); err != nil {
		return nil, err
	}
	if err := s.registered(ctx, name, owner, req.TTL); err != nil {
		return nil, err
	}
	var out []store.Lease
	err := s.write(ctx, "acquire partitions of relay "+name, func(t txn) (err error) {
		if err := cmp.Or(t.begun(), t.checkPartitions()); err != nil {
			return err
		}
		out, err = t.acquire(ctx, name, owner, req)
		return err
	})
	return out, err
}

// ownerRow is one process of a relay.
type ownerRow struct {
	owner           string
	ttl, aliveUntil int64
}

func (t txn) acquire(ctx context.Context, name string, owner store.Owner, req store.AcquireRequest) ([]store.Lease, error) {
	claims := make(map[int]store.LeaseClaim)
	for _, c := range req.Claims {
		claims[c.Partition] = c
	}
	others := []ownerRow{{ttl: req.TTL.Microseconds()}}
	err := t.each(ctx, ownersOfSQL, []any{name}, func(rows *sql.Rows) error {
		var o ownerRow
		err := rows.Scan(&o.owner, &o.ttl, &o.aliveUntil)
		if o.owner != owner.ID {
			others = append(others, o)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var out []store.Lease
	var kind store.Kind
	var granted []string
	err = t.each(ctx, freeSQL, []any{name, slices.Collect(maps.Keys(claims))}, func(rows *sql.Rows) error {
		l := store.Lease{Owner: owner.ID}
		var holder, incarnation string
		err := rows.Scan(&l.Partition, &kind, &holder, &incarnation, &l.Cursor.Position, &l.Cursor.Snapshot, &l.Settled)
		err = cmp.Or(err, kind.Check(req.Kind))
		claim := claims[l.Partition]
		if err == nil && (holder == owner.ID && incarnation == t.incarnation || t.free(holder, incarnation, others, claim.Resume)) {
			l.Token = claim.Token
			out, granted = append(out, l), append(granted, render(acquireRow, []any{l.Partition, l.Token}))
		}
		return err
	})
	if err == nil {
		_, err = t.exec(ctx, aliveSQL, name, owner.ID, owner.Host, owner.Version, req.TTL.Microseconds())
	}
	if err != nil || len(out) == 0 {
		return nil, err
	}
	text := strings.Replace(acquireSQL, `%s`, strings.Join(granted, ` UNION ALL `), 1)
	if _, err := t.exec(ctx, text, name, owner.ID, t.incarnation); err != nil {
		return nil, err
	}
	filters, err := t.filters(ctx)
	if err != nil {
		return nil, err
	}
	for i := range out {
		l := &out[i]
		l.Filter = store.TopicFilterOf(name, filters)
		if l.Parked, err = t.parkedState(ctx, name, kind, l.Partition, l.Cursor, req.MaxHeld); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// free reports whether a lease that no process or another one holds can be granted, as store.Leases specifies. After a
// failover, and after a crash that may have lost commits, the record of which processes are alive is outdated: then only time
// counts.
func (t txn) free(holder, incarnation string, others []ownerRow, resume bool) bool {
	alive := func(o ownerRow) bool { return o.aliveUntil > t.now }
	switch {
	case incarnation == t.incarnation:
		return holder == "" || !slices.ContainsFunc(others, func(o ownerRow) bool { return o.owner == holder && alive(o) })
	case resume, holder == "" && incarnation == "": // never leased under the current schema
		return true
	}
	longest := int64(0)
	for _, o := range others {
		longest = max(longest, o.ttl)
	}
	known := t.durable && sameServer(incarnation, t.incarnation) && !slices.ContainsFunc(others, alive)
	return known || t.now >= t.begunAt+longest
}

const (
	releaseSQL = `UPDATE {prefix}cursors SET owner = '', token = ''
		WHERE relay = ? AND partition_id = ? AND owner <> '' AND token = ? AND incarnation = ?`
	releaseAllSQL = `UPDATE {prefix}cursors SET owner = '', token = '', incarnation = ?4 WHERE relay = ?1 AND partition_id IN ?3 AND owner = ?2 AND incarnation = ?4`
	ownedSQL      = `SELECT partition_id FROM {prefix}cursors WHERE relay = ? AND owner = ? ORDER BY partition_id`
	goneSQL       = `UPDATE {prefix}relays SET alive_until = LEAST(alive_until, ?), generation = 0 WHERE relay = ? AND owner = ?`
)

// Release implements store.Leases.
func (s *Store) Release(ctx context.Context, name string, leases []store.LeaseRef) error {
	leases = slices.SortedFunc(slices.Values(leases), func(a, b store.LeaseRef) int { return a.Partition - b.Partition })
	return s.write(ctx, "release partitions of relay "+name, func(t txn) error {
		for _, l := range leases {
			if _, err := t.exec(ctx, releaseSQL, name, l.Partition, l.Token, t.incarnation); err != nil {
				return err
			}
		}
		return nil
	})
}

// Leave implements store.Leases.
func (s *Store) Leave(ctx context.Context, name string, owner store.Owner) error {
	return s.write(ctx, "leave relay "+name, func(t txn) error {
		if err := t.begun(); err != nil {
			return err
		}
		held, err := stored.Column[int](ctx, t.query, ownedSQL, name, owner.ID)
		if err == nil && len(held) > 0 {
			_, err = t.exec(ctx, releaseAllSQL, name, owner.ID, held, t.incarnation)
		}
		if err == nil {
			_, err = t.exec(ctx, goneSQL, t.now, name, owner.ID)
		}
		return err
	})
}

// checkPartitions returns an error if the number of partitions is not the one that this Store was opened with.
func (t txn) checkPartitions() error {
	if t.partitions != t.s.number() {
		return fmt.Errorf("%w: from %d to %d", store.ErrRepartitioned, t.s.number(), t.partitions)
	}
	return nil
}
