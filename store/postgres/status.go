package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	// undeliveredSQL returns what cursor c has not delivered, at most $1 rows of each kind: late and fresh. Parked messages are left
	// out.
	undeliveredSQL = `
	select l.created_at from (
		(select l.partition, l.seq, l.created_at from pg_snapshot_xip(c.snapshot) as x cross join lateral (
			select l.partition, l.seq, l.created_at from {log} l where l.xid = x and l.seq <= c.position and l.partition = c.partition and ` + notPagedSQL + `
			limit $1::int8) as l)
		union all
		(select l.partition, l.seq, l.created_at from {log} l
		where l.xid >= pg_snapshot_xmax(c.snapshot) and l.xid < coalesce(c.ceiling, '18446744073709551615') and l.seq <= c.position
			and l.partition = c.partition and ` + notPagedSQL + ` limit $1::int8)
		union all
		(select l.partition, l.seq, l.created_at from {log} l
		where l.partition = c.partition and l.seq > c.position order by l.seq limit $1::int8)
	) as l
	where not exists (select 1 from {parked} p where p.relay = c.relay and p.partition = l.partition and p.seq = l.seq)`
	notPagedSQL = `(c.page is null or l.seq > c.page or not pg_visible_in_snapshot(l.xid, c.page_snapshot))`

	partitionStatusSQL = `
select g.relay, kind, g.partition::int4, %s, c.n, case when kind = 'relay' then c.position else 0 end, b.count, coalesce(b.oldest, now),
	c.settled_at, c.delivered, c.failed, now
from (select clock_timestamp() as now) as clock, (select g.relay, g.partition, ` + kindSQL + ` as kind from {relay_partitions} g) as g
cross join lateral (
	select * from {cursors} c where c.relay = g.relay and c.partition = g.partition order by c.n desc limit 1) as c
cross join lateral (
	select count(*) as count, min(created_at) as oldest from (` + undeliveredSQL + ` and kind = 'relay' limit $1::int8) as u) as b
order by g.relay, g.partition`
	// leaseStatusSQL returns who holds a lease and until when; noLeaseSQL replaces it on a standby, which has no leases.
	leaseStatusSQL = `(select l.owner from {leases} l where l.relay = g.relay and l.partition = g.partition and ` + heldSQL + `), (
	select r.alive_until from {leases} l join {relays} r using (relay, owner)
	where l.relay = g.relay and l.partition = g.partition and ` + heldSQL + ` and r.alive_until > now)`
	noLeaseSQL = `null::text, null::timestamptz`

	// relayStatusSQL counts up to $1. The oldest parked message is the oldest among the first $1 found.
	relayStatusSQL = `
select g.relay, p.count, coalesce(p.oldest, now), coalesce(p.waiting, now),
	(select count(*) from (select 1 from {held} h where h.relay = g.relay limit $1::int8) as n),
	coalesce((select since from {held} h where h.relay = g.relay order by since limit 1), now),
	(select count(*) from (select 1 from {dead} d where d.relay = g.relay and d.state = 'open' limit $1::int8) as n),
	coalesce((select died_at from {dead} d where d.relay = g.relay and d.state = 'open' order by number limit 1), now),
	now
from (select clock_timestamp() as now) as clock, (select relay from {relay_partitions} union select relay from {relays} where member) as g
cross join lateral (
	select count(*) as count, min(parked_at) as oldest, min(parked_at) filter (where reason <> 'delayed') as waiting
	from (select parked_at, reason from {parked} p where p.relay = g.relay limit $1::int8) as n) as p
order by g.relay`

	ownersSQL = `
select relay, owner, host, version, destination, alive_until > now, seen_at, started_at, now
from {relays}, (select clock_timestamp() as now) as clock where member order by relay, started_at, owner`
)

// Status implements store.StatusReader.
func (s *Store) Status(ctx context.Context) (store.Status, error) {
	if _, err := s.open(ctx); err != nil {
		return store.Status{}, err
	}
	st := statusReader{store: s}
	err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly},
		func(tx pgx.Tx) error { return st.read(ctx, tx) })
	return st.out, translate("status", err)
}

// statusReader assembles a status.
type statusReader struct {
	store *Store
	out   store.Status
}

func (r *statusReader) read(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, planSQL); err != nil {
		return err
	}
	now := r.store.names.expand("select clock_timestamp(), {partitions}()")
	if err := tx.QueryRow(ctx, now).Scan(&r.out.Now, &r.out.Partitions); err != nil {
		return err
	}
	r.out.Now = r.out.Now.UTC()
	for _, part := range []func(context.Context, pgx.Tx) error{r.notices, r.relays, r.partitions, r.owners, r.filters} {
		if err := part(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

// query runs a statement and calls each after scanning a row into dests.
func (r *statusReader) query(ctx context.Context, tx pgx.Tx, sql string, args, dests []any, each func()) error {
	rows, err := tx.Query(ctx, r.store.names.expand(sql), args...)
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, dests, func() error {
		each()
		return nil
	})
	return err
}

func (r *statusReader) relay(name string) *store.RelayStatus {
	for i := range r.out.Relays {
		if r.out.Relays[i].Name == name {
			return &r.out.Relays[i]
		}
	}
	r.out.Relays = append(r.out.Relays, store.RelayStatus{Name: name, Kind: store.KindRelay})
	return &r.out.Relays[len(r.out.Relays)-1]
}

// restoredLatelySQL returns when the outbox was restored from another cluster, for a week afterwards.
const restoredLatelySQL = `select restored_at from {meta} where restored_at > clock_timestamp() - interval '7 days'`

func (r *statusReader) notices(ctx context.Context, tx pgx.Tx) error {
	var at time.Time
	return r.query(ctx, tx, restoredLatelySQL, nil, []any{&at}, func() {
		r.out.Notices = append(r.out.Notices, fmt.Sprintf("the outbox was restored from another cluster, noticed at %s: "+
			"relays went back and delivered some messages again", at.UTC().Format(time.RFC3339)))
	})
}

func (r *statusReader) relays(ctx context.Context, tx pgx.Tx) error {
	var name string
	var parked, held, dead int64
	var oldestParked, oldestWaiting, oldestHeld, oldestDead, now time.Time
	dests := []any{&name, &parked, &oldestParked, &oldestWaiting, &held, &oldestHeld, &dead, &oldestDead, &now}
	return r.query(ctx, tx, relayStatusSQL, []any{int64(store.CountLimit + 1)}, dests, func() {
		st := r.relay(name)
		st.Parked, st.OldestParked = count(parked), now.Sub(oldestParked)
		st.Held, st.OldestHeld = count(held), now.Sub(oldestHeld)
		if st.OldestUndelivered = now.Sub(oldestWaiting); st.Parked.AtLeast {
			st.OldestUndelivered = max(st.OldestUndelivered, st.OldestHeld)
		}
		st.Dead, st.OldestDead = count(dead), now.Sub(oldestDead)
	})
}

func (r *statusReader) partitions(ctx context.Context, tx pgx.Tx) error {
	var standby bool
	if err := tx.QueryRow(ctx, "select pg_catalog.pg_is_in_recovery()").Scan(&standby); err != nil {
		return err
	}
	lease := leaseStatusSQL
	if standby { // unlogged tables cannot be read there
		lease = noLeaseSQL
	}
	var name string
	var kind store.Kind
	var owner *string
	var until *time.Time
	var p store.PartitionStatus
	var backlog, delivered, failed int64
	var oldest, settled, now time.Time
	dests := []any{&name, &kind, &p.Partition, &owner, &until, &p.Settlements, &p.Position, &backlog, &oldest, &settled, &delivered,
		&failed, &now}
	return r.query(ctx, tx, fmt.Sprintf(partitionStatusSQL, lease), []any{int64(store.CountLimit + 1)}, dests, func() {
		p.Owner, p.LeaseLeft = "", 0
		if owner != nil && until != nil {
			p.Owner, p.LeaseLeft = *owner, until.Sub(now)
		}
		p.Backlog, p.Age, p.SettledAgo = count(backlog), now.Sub(oldest), now.Sub(settled)
		st := r.relay(name)
		st.Kind, st.Partitions = kind, append(st.Partitions, p)
		n := st.Backlog.N + p.Backlog.N
		st.Backlog = store.Count{N: min(n, store.CountLimit), AtLeast: st.Backlog.AtLeast || p.Backlog.AtLeast || n > store.CountLimit}
		st.Age = max(st.Age, p.Age)
		st.OldestUndelivered = max(st.OldestUndelivered, p.Age)
		st.Delivered += delivered
		st.Failed += failed
	})
}

func (r *statusReader) owners(ctx context.Context, tx pgx.Tx) error {
	var name string
	var o store.OwnerStatus
	var destination string
	var seen, now time.Time
	var failed error
	dests := []any{&name, &o.ID, &o.Host, &o.Version, &destination, &o.Alive, &seen, &o.Started, &now}
	err := r.query(ctx, tx, ownersSQL, nil, dests, func() {
		o.SeenAgo, o.Started = now.Sub(seen), o.Started.UTC()
		d, err := stored.ParseDestination(destination, o.SeenAgo)
		if err != nil {
			failed = err
		}
		o.Destination = d
		st := r.relay(name)
		st.Owners = append(st.Owners, o)
	})
	return errors.Join(err, failed)
}

// count converts a count that stops one above store.CountLimit.
func count(n int64) store.Count {
	return store.Count{N: min(n, store.CountLimit), AtLeast: n > store.CountLimit}
}
