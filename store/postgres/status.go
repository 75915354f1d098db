package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	// undeliveredSQL returns what cursor c has not delivered, at most c.most rows of each kind: late and fresh. Parked messages are left
	// out, one look at the index for each row: the planner would compare all of them with a relay's whole parking lot, if it makes a
	// join of a NOT EXISTS.
	undeliveredSQL = `
	select l.created_at from (
		(select l.partition, l.seq, l.created_at from pg_snapshot_xip(c.snapshot) as x cross join lateral (
			select l.partition, l.seq, l.created_at from {log} l where l.xid = x and l.seq <= c.position and l.partition = c.partition and ` + notPagedSQL + `
			limit c.most) as l)
		union all
		(select l.partition, l.seq, l.created_at from {log} l
		where l.xid >= pg_snapshot_xmax(c.snapshot) and l.xid < coalesce(c.ceiling, '18446744073709551615') and l.seq <= c.position
			and l.partition = c.partition and ` + notPagedSQL + ` limit c.most)
		union all
		(select l.partition, l.seq, l.created_at from {log} l
		where l.partition = c.partition and l.seq > c.position order by l.seq limit c.most)
	) as l
	where (select true from {parked} p where p.relay = c.relay and p.partition = l.partition and p.seq = l.seq) is null`
	notPagedSQL = `(c.page is null or l.seq > c.page or not pg_visible_in_snapshot(l.xid, c.page_snapshot))`

	partitionStatusSQL = `
select g.relay, kind, g.partition::int4, %s, c.n, case when kind = 'relay' then c.position else 0 end, c.settled_at, d.delivered, c.failed, now
from (select clock_timestamp() as now) as clock, (select g.relay, g.partition, ` + kindSQL + ` as kind from {relay_partitions} g) as g
cross join lateral (
	select * from {cursors} c where c.relay = g.relay and c.partition = g.partition order by c.n desc limit 1) as c
cross join lateral (
	select sum(delivered)::int8 as delivered from {cursors} d where d.relay = g.relay and d.partition = g.partition) as d
order by g.relay, g.partition`
	// backlogSQL counts what relays have not delivered in partitions, in the order of the arrays: $1 relays, $2 partitions, $3 limits.
	backlogSQL = `
select b.count, coalesce(b.oldest, now), now
from (select clock_timestamp() as now) as clock, unnest($1::text[], $2::int4[], $3::int8[]) with ordinality as g (relay, partition, most, nr)
cross join lateral (
	select c.*, g.most from {cursors} c where c.relay = g.relay and c.partition = g.partition order by c.n desc limit 1) as c
cross join lateral (
	select count(*) as count, min(created_at) as oldest from (` + undeliveredSQL + ` limit c.most) as u) as b
order by g.nr`
	// leaseStatusSQL returns who holds a lease and until when; noLeaseSQL replaces it on a standby, which has no leases.
	leaseStatusSQL = `(select l.owner from {leases} l where l.relay = g.relay and l.partition = g.partition and ` + heldSQL + `), (
	select r.alive_until from {leases} l join {relays} r using (relay, owner)
	where l.relay = g.relay and l.partition = g.partition and ` + heldSQL + ` and r.alive_until > now)`
	noLeaseSQL = `null::text, null::timestamptz`

	// relayStatusSQL counts up to $1. The oldest parked message is the oldest among the first $1 found. The range for d.relay, rather than an
	// equality, has the oldest dead letter found by the index of the relay: by the index of all numbers, a relay without dead letters would
	// read all those of the others.
	relayStatusSQL = `
select g.relay, p.count, coalesce(p.oldest, now), coalesce(p.waiting, now),
	(select count(*) from (select 1 from {held} h where h.relay = g.relay limit $1::int8) as n),
	coalesce((select since from {held} h where h.relay = g.relay order by since limit 1), now),
	(select count(*) from (select 1 from {dead} d where d.relay = g.relay and d.state = 'open' limit $1::int8) as n),
	coalesce((select died_at from {dead} d where d.relay >= g.relay and d.relay <= g.relay and d.state = 'open'
		order by d.relay, d.number limit 1), now),
	now
from (select clock_timestamp() as now) as clock, (select relay from {relay_partitions} union select relay from {relays} where member) as g
cross join lateral (
	select count(*) as count, min(parked_at) as oldest, min(parked_at) filter (where reason <> 'delayed') as waiting
	from (select parked_at, reason from {parked} p where p.relay = g.relay limit $1::int8) as n) as p
order by g.relay`

	ownersSQL = `
select relay, owner, host, version, alive_until > now, seen_at, started_at, destination, now
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
	return st.rows.Status(), translate("status", err)
}

// statusReader reads the rows of a status.
type statusReader struct {
	store *Store
	rows  stored.StatusRows
}

func (r *statusReader) read(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, planSQL); err != nil {
		return err
	}
	now := r.store.names.expand("select clock_timestamp(), {partitions}()")
	if err := tx.QueryRow(ctx, now).Scan(&r.rows.Now, &r.rows.Partitions); err != nil {
		return err
	}
	for _, part := range []func(context.Context, pgx.Tx) error{r.notices, r.pauses, r.relays, r.cursors, r.processes, r.filters, r.sizes} {
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

// restoredLatelySQL returns when the outbox was restored from another cluster, for a week afterwards.
const restoredLatelySQL = `select restored_at from {meta} where restored_at > clock_timestamp() - interval '7 days'`

// adoptionSQL returns how far the adoption of a restored outbox is, and the cluster that its transaction ids belong to.
const adoptionSQL = `select r.body, m.system_identifier from {records} r, {meta} m where r.kind = '` + kindAdoption + `'`

func (r *statusReader) notices(ctx context.Context, tx pgx.Tx) error {
	var body []byte
	var cluster *int64
	err := r.query(ctx, tx, adoptionSQL, nil, []any{&body, &cluster}, func() {
		var p adoption
		if err := json.Unmarshal(body, &p); err != nil || cluster == nil || p.From != *cluster {
			return // a program of an earlier release has adopted the outbox meanwhile
		}
		r.rows.Notices = append(r.rows.Notices, fmt.Sprintf("the outbox was restored from another cluster, and is being adopted (%s): "+
			"no partition is leased until that is done", p))
	})
	if err != nil {
		return err
	}
	var at time.Time
	return r.query(ctx, tx, restoredLatelySQL, nil, []any{&at}, func() {
		r.rows.Notices = append(r.rows.Notices, fmt.Sprintf("the outbox was restored from another cluster, noticed at %s: "+
			"relays went back and delivered some messages again", at.UTC().Format(time.RFC3339)))
	})
}

func (r *statusReader) pauses(ctx context.Context, tx pgx.Tx) (err error) {
	r.rows.Pauses, err = records{s: r.store, tx: tx}.ListRecords(ctx, stored.Pauses)
	return err
}

func (r *statusReader) relays(ctx context.Context, tx pgx.Tx) error {
	var row stored.RelayRow
	var parked, waiting, held, dead, now time.Time
	dests := []any{&row.Relay, &row.Parked, &parked, &waiting, &row.Held, &held, &row.Dead, &dead, &now}
	return r.query(ctx, tx, relayStatusSQL, []any{int64(store.CountLimit + 1)}, dests, func() {
		row.OldestParked, row.OldestWaiting, row.OldestHeld, row.OldestDead = now.Sub(parked), now.Sub(waiting), now.Sub(held), now.Sub(dead)
		if row.Parked > store.CountLimit { // not all of them were looked at
			row.OldestWaiting = max(row.OldestWaiting, row.OldestHeld)
		}
		r.rows.Relays = append(r.rows.Relays, row)
	})
}

func (r *statusReader) cursors(ctx context.Context, tx pgx.Tx) error {
	var standby bool
	if err := tx.QueryRow(ctx, "select pg_catalog.pg_is_in_recovery()").Scan(&standby); err != nil {
		return err
	}
	lease := leaseStatusSQL
	if standby { // unlogged tables cannot be read there
		lease = noLeaseSQL
	}
	var c stored.CursorRow
	var owner *string
	var until *time.Time
	var settled, now time.Time
	dests := []any{&c.Relay, &c.Kind, &c.Partition, &owner, &until, &c.Settlements, &c.Position, &settled, &c.Delivered, &c.Failed, &now}
	err := r.query(ctx, tx, fmt.Sprintf(partitionStatusSQL, lease), nil, dests, func() {
		c.Owner, c.LeaseLeft = "", 0
		if owner != nil && until != nil {
			c.Owner, c.LeaseLeft = *owner, until.Sub(now)
		}
		c.SettledAgo = now.Sub(settled)
		r.rows.Cursors = append(r.rows.Cursors, c)
	})
	if err != nil {
		return err
	}
	return stored.CountBacklogs(r.rows.Cursors, func(parts []stored.Share) error { return r.backlogs(ctx, tx, parts) })
}

// backlogs counts what is undelivered in some partitions of relays.
func (r *statusReader) backlogs(ctx context.Context, tx pgx.Tx, parts []stored.Share) error {
	relays, partitions, limits := make([]string, len(parts)), make([]int32, len(parts)), make([]int64, len(parts))
	for i, p := range parts {
		c := &r.rows.Cursors[p.Cursor]
		relays[i], partitions[i], limits[i] = c.Relay, int32(c.Partition), p.Limit
	}
	i, count := 0, int64(0)
	var oldest, now time.Time
	return r.query(ctx, tx, backlogSQL, []any{relays, partitions, limits}, []any{&count, &oldest, &now}, func() {
		c := &r.rows.Cursors[parts[i].Cursor]
		c.Undelivered, c.Age = count, now.Sub(oldest)
		i++
	})
}

func (r *statusReader) processes(ctx context.Context, tx pgx.Tx) error {
	var p stored.ProcessRow
	var seen, now time.Time
	dests := []any{&p.Relay, &p.ID, &p.Host, &p.Version, &p.Alive, &seen, &p.Started, &p.Reached, &now}
	return r.query(ctx, tx, ownersSQL, nil, dests, func() {
		p.SeenAgo, p.Started = now.Sub(seen), p.Started.UTC()
		r.rows.Processes = append(r.rows.Processes, p)
	})
}

// filters reads the topics that each relay takes and the topics that no relay takes.
func (r *statusReader) filters(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, r.store.names.expand(filtersSQL))
	if err != nil {
		return err
	}
	if r.rows.Topics, err = readFilters(rows); err != nil {
		return err
	}
	var u store.UnroutedTopic
	return r.query(ctx, tx, unroutedSQL, []any{int64(store.MaxUnroutedTopics)}, []any{&u.Topic, &u.Count, &u.FirstAt, &u.LastAt}, func() {
		u.FirstAt, u.LastAt = u.FirstAt.UTC(), u.LastAt.UTC()
		r.rows.Unrouted = append(r.rows.Unrouted, u)
	})
}
