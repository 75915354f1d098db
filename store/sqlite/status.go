package sqlite

import (
	"context"
	"database/sql"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// Each count reads at most one index entry more than store.CountLimit (10,000).
const (
	knownSQL = `SELECT relay FROM {prefix}cursors UNION SELECT relay FROM {prefix}relays ORDER BY relay`
	// ?2 is the incarnation, ?3 now. A lease that does not hold has no owner.
	cursorsSQL = `SELECT c.partition, coalesce(o.owner, ''), coalesce(o.alive_until, 0), c.number, c.kind, c.position, c.settled_at,
			c.delivered, c.failed
		FROM {prefix}cursors c LEFT JOIN {prefix}relays o ON o.relay = c.relay AND o.owner = c.owner AND o.alive_until > ?3
			AND c.incarnation IN ('', ?2)
		WHERE c.relay = ?1 ORDER BY c.partition`
	backlogSQL = `SELECT count(*) FROM (SELECT 1 FROM {prefix}log l WHERE l.partition = ?2 AND l.seq > ?3
		AND NOT EXISTS (SELECT 1 FROM {prefix}parked p WHERE p.relay = ?1 AND p.seq = l.seq) LIMIT 10001)`
	oldestSQL = `SELECT max(created_at) FROM (SELECT l.created_at FROM {prefix}log l WHERE l.partition = ?2 AND l.seq > ?3
		AND NOT EXISTS (SELECT 1 FROM {prefix}parked p WHERE p.relay = ?1 AND p.seq = l.seq) ORDER BY l.seq LIMIT 1)`
	exceptionsSQL = `SELECT
		(SELECT count(*) FROM (SELECT 1 FROM {prefix}parked WHERE relay = ?1 LIMIT 10001)),
		(SELECT min(parked_at) FROM {prefix}parked WHERE relay = ?1),
		(SELECT min(parked_at) FROM {prefix}parked WHERE relay = ?1 AND reason <> 'delayed'),
		(SELECT count(*) FROM (SELECT 1 FROM {prefix}held WHERE relay = ?1 LIMIT 10001)),
		(SELECT min(since) FROM {prefix}held WHERE relay = ?1),
		(SELECT count(*) FROM (SELECT 1 FROM {prefix}dead WHERE state = 'open' AND relay = ?1 LIMIT 10001)),
		(SELECT max(died_at) FROM (SELECT died_at FROM {prefix}dead WHERE state = 'open' AND relay = ?1 ORDER BY number LIMIT 1))`
	ownersSQL = `SELECT owner, host, version, started_at, seen_at, alive_until > ?2, destination FROM {prefix}relays WHERE relay = ?1 AND member
		ORDER BY started_at, owner`
)

// Status implements store.StatusReader.
func (s *Store) Status(ctx context.Context) (store.Status, error) {
	var out store.Status
	err := s.read(ctx, "status", func(t txn) error {
		out = store.Status{Now: stored.Time(t.now)}
		if err := t.get(ctx, partitionsSQL, nil, &out.Partitions); err != nil {
			return err
		}
		err := t.each(ctx, knownSQL, nil, func(rows *sql.Rows) error {
			r := store.RelayStatus{Kind: store.KindRelay}
			err := rows.Scan(&r.Name)
			out.Relays = append(out.Relays, r)
			return err
		})
		for i := range out.Relays {
			if err == nil {
				err = t.relayStatus(ctx, &out.Relays[i])
			}
		}
		if err != nil {
			return err
		}
		return t.filtersStatus(ctx, &out)
	})
	return out, err
}

func (t txn) relayStatus(ctx context.Context, r *store.RelayStatus) error {
	err := t.each(ctx, cursorsSQL, []any{r.Name, t.s.incarnation.text, t.now}, func(rows *sql.Rows) error {
		var p store.PartitionStatus
		var until, settled, delivered, failed int64
		err := rows.Scan(&p.Partition, &p.Owner, &until, &p.Settlements, &r.Kind, &p.Position, &settled, &delivered, &failed)
		if p.Owner != "" {
			p.LeaseLeft = micros(until - t.now)
		}
		p.SettledAgo = micros(t.now - settled)
		r.Partitions = append(r.Partitions, p)
		r.Delivered += delivered
		r.Failed += failed
		return err
	})
	if err != nil {
		return err
	}
	for i := range r.Partitions {
		if r.Kind == store.KindConsumer {
			break // it has no backlog
		}
		if err := t.backlog(ctx, r, &r.Partitions[i]); err != nil {
			return err
		}
	}
	var parked, held, dead int64
	var oldestParked, oldestWaiting, oldestHeld, oldestDead sql.Null[int64]
	err = t.get(ctx, exceptionsSQL, []any{r.Name}, &parked, &oldestParked, &oldestWaiting, &held, &oldestHeld, &dead, &oldestDead)
	if err != nil {
		return err
	}
	r.Parked, r.Held, r.Dead = count(parked), count(held), count(dead)
	r.OldestParked, r.OldestHeld, r.OldestDead = age(oldestParked, t.now), age(oldestHeld, t.now), age(oldestDead, t.now)
	r.OldestUndelivered = max(r.Age, age(oldestWaiting, t.now))
	return t.each(ctx, ownersSQL, []any{r.Name, t.now}, func(rows *sql.Rows) error {
		var o store.OwnerStatus
		var started, seen int64
		var destination string
		err := rows.Scan(&o.ID, &o.Host, &o.Version, &started, &seen, &o.Alive, &destination)
		if err != nil {
			return err
		}
		o.Started, o.SeenAgo = stored.Time(started), micros(t.now-seen)
		o.Destination, err = stored.ParseDestination(destination, o.SeenAgo)
		r.Owners = append(r.Owners, o)
		return err
	})
}

// backlog counts the committed messages that are neither settled nor parked, in a partition and in total.
func (t txn) backlog(ctx context.Context, r *store.RelayStatus, p *store.PartitionStatus) error {
	var n int64
	var oldest sql.Null[int64]
	args := []any{r.Name, p.Partition, p.Position}
	if err := t.get(ctx, backlogSQL, args, &n); err != nil {
		return err
	}
	if err := t.get(ctx, oldestSQL, args, &oldest); err != nil {
		return err
	}
	p.Backlog, p.Age = count(n), age(oldest, t.now)
	total := count(r.Backlog.N + p.Backlog.N)
	total.AtLeast = total.AtLeast || r.Backlog.AtLeast || p.Backlog.AtLeast
	r.Backlog, r.Age = total, max(r.Age, p.Age)
	return nil
}

// count converts a count that stops one above store.CountLimit.
func count(n int64) store.Count {
	return store.Count{N: min(n, store.CountLimit), AtLeast: n > store.CountLimit}
}
