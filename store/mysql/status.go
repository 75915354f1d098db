package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// Each count reads at most one index entry more than store.CountLimit (10,000).
const (
	knownSQL   = `SELECT relay FROM {prefix}cursors UNION SELECT relay FROM {prefix}relays ORDER BY relay`
	cursorsSQL = `SELECT c.partition_id, IF(c.incarnation = {present} AND r.owner <> '', r.owner, ''), COALESCE(r.alive_until, 0), c.number,
		c.kind, c.position, c.gaps, c.settled_at, c.delivered, c.failed
		FROM {prefix}cursors c LEFT JOIN {prefix}relays r ON r.relay = c.relay AND r.owner = c.owner AND r.alive_until > ?2
		WHERE c.relay = ?1 ORDER BY c.partition_id`
	backlogSQL = `SELECT COUNT(*) FROM (SELECT 1 FROM {prefix}log l WHERE l.partition_id = ?2 AND (%s)
		AND NOT EXISTS (SELECT 1 FROM {prefix}parked p WHERE p.relay = ?1 AND p.seq = l.seq) LIMIT 10001) b`
	oldestSQL = `SELECT l.created_at FROM {prefix}log l WHERE l.partition_id = ?2 AND (%s)
		AND NOT EXISTS (SELECT 1 FROM {prefix}parked p WHERE p.relay = ?1 AND p.seq = l.seq) ORDER BY l.seq LIMIT 1`
	exceptionsSQL = `SELECT
		(SELECT COUNT(*) FROM (SELECT 1 FROM {prefix}parked WHERE relay = ?1 LIMIT 10001) a),
		(SELECT MIN(parked_at) FROM {prefix}parked WHERE relay = ?1),
		(SELECT MIN(parked_at) FROM {prefix}parked WHERE relay = ?1 AND reason <> 'delayed'),
		(SELECT COUNT(*) FROM (SELECT 1 FROM {prefix}held WHERE relay = ?1 LIMIT 10001) b),
		(SELECT MIN(since) FROM {prefix}held WHERE relay = ?1),
		(SELECT COUNT(*) FROM (SELECT 1 FROM {prefix}dead WHERE state = 'open' AND relay = ?1 LIMIT 10001) c),
		(SELECT died_at FROM {prefix}dead WHERE state = 'open' AND relay = ?1 ORDER BY number LIMIT 1)`
	ownersSQL = `SELECT owner, host, version, started_at, seen_at, alive_until > ?2, destination FROM {prefix}relays WHERE relay = ?1 AND member
		ORDER BY started_at, owner`
)

// Status implements store.StatusReader.
func (s *Store) Status(ctx context.Context) (store.Status, error) {
	var out store.Status
	err := s.read(ctx, "status", func(t txn) error {
		out = store.Status{Now: stored.Time(t.now), Partitions: t.partitions}
		names, err := column[string](ctx, t, knownSQL)
		for _, name := range names {
			if err == nil {
				var r store.RelayStatus
				r, err = t.relayStatus(ctx, name)
				out.Relays = append(out.Relays, r)
			}
		}
		if err != nil {
			return err
		}
		return t.filtersStatus(ctx, &out)
	})
	return out, err
}

func (t txn) relayStatus(ctx context.Context, name string) (store.RelayStatus, error) {
	r := store.RelayStatus{Name: name, Kind: store.KindRelay}
	if err := t.partitionsStatus(ctx, &r); err != nil {
		return r, err
	}
	var parked, held, dead int64
	var oldestParked, oldestWaiting, oldestHeld, oldestDead sql.Null[int64]
	err := t.get(ctx, exceptionsSQL, []any{name}, &parked, &oldestParked, &oldestWaiting, &held, &oldestHeld, &dead, &oldestDead)
	if err != nil {
		return r, err
	}
	r.Parked, r.Held, r.Dead = count(parked), count(held), count(dead)
	r.OldestParked, r.OldestHeld, r.OldestDead = age(oldestParked, t.now), age(oldestHeld, t.now), age(oldestDead, t.now)
	r.OldestUndelivered = max(r.Age, age(oldestWaiting, t.now))
	err = t.each(ctx, ownersSQL, []any{name, t.now}, func(rows *sql.Rows) error {
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
	return r, err
}

func (t txn) partitionsStatus(ctx context.Context, r *store.RelayStatus) error {
	var missing []gaps
	err := t.each(ctx, cursorsSQL, []any{r.Name, t.now}, func(rows *sql.Rows) error {
		var p store.PartitionStatus
		var until, settled, delivered, failed int64
		var text string
		err := rows.Scan(&p.Partition, &p.Owner, &until, &p.Settlements, &r.Kind, &p.Position, &text, &settled, &delivered, &failed)
		if err != nil {
			return err
		}
		g, err := parseGaps(text)
		if p.Owner != "" {
			p.LeaseLeft = micros(until - t.now)
		}
		p.SettledAgo = micros(t.now - settled)
		r.Partitions, missing = append(r.Partitions, p), append(missing, g)
		r.Delivered += delivered
		r.Failed += failed
		return err
	})
	for i := range r.Partitions {
		if err == nil && r.Kind == store.KindRelay {
			err = t.backlog(ctx, r, &r.Partitions[i], missing[i])
		}
	}
	return err
}

// backlog counts the messages that are committed and neither settled nor parked, in a partition and in total.
func (t txn) backlog(ctx context.Context, r *store.RelayStatus, p *store.PartitionStatus, missing gaps) error {
	var n int64
	var oldest sql.Null[int64]
	args, open := []any{r.Name, p.Partition}, ahead(p.Position, missing)
	if err := t.get(ctx, strings.Replace(backlogSQL, `%s`, open, 1), args, &n); err != nil {
		return err
	}
	if n > 0 {
		err := t.get(ctx, strings.Replace(oldestSQL, `%s`, open, 1), args, &oldest)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	p.Backlog, p.Age = count(n), age(oldest, t.now)
	total := count(r.Backlog.N + p.Backlog.N)
	total.AtLeast = total.AtLeast || r.Backlog.AtLeast || p.Backlog.AtLeast
	r.Backlog, r.Age = total, max(r.Age, p.Age)
	return nil
}

// count limits a number to store.CountLimit.
func count(n int64) store.Count {
	return store.Count{N: min(n, store.CountLimit), AtLeast: n > store.CountLimit}
}
