package postgres

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	// beginSQL creates the rows of a relay that is new to the outbox, for all partitions: a partition that nobody has leased yet
	// must also keep its messages from being dropped. Nobody can hold a lease of the relay, so its leases are free. $1 relay, $2
	// partitions, $3 position, $4 snapshot, $5 kind. The ceiling is this transaction's id, which is assigned after $3 was read.
	beginSQL = `
with new as (
	insert into {relay_partitions} (relay, partition, kind) select $1::text, p, $5::text
	from generate_series(0, $2::int4 - 1) as p where {partitions}() = $2::int4
	on conflict do nothing returning partition
), free as (
	insert into {leases} (relay, partition, incarnation) select $1::text, partition, {incarnation}() from new
	on conflict (relay, partition) do update set owner = '', token = '', incarnation = excluded.incarnation
)
insert into {cursors} (relay, partition, n, position, snapshot, ceiling)
select $1::text, partition, 0, $3::int8, $4::text::pg_snapshot, pg_current_xact_id() from new`

	// presentSQL returns the end of the log: every row visible in the snapshot has a sequence up to the second column.
	presentSQL = `select pg_catalog.pg_current_snapshot()::text, case when is_called then last_value else 0 end::int8 from %s`

	// oneAcquirerSQL takes the right to grant leases of relay $1, which one transaction has at a time: the statements after it see
	// what the previous transaction granted, and to whom. acquirePlanSQL limits the wait.
	oneAcquirerSQL = `select pg_advisory_xact_lock(hashtextextended('{relays}' || $1::text, 2))`
	// acquirePlanSQL waits for the disk, since the record of which processes are alive must survive a crash.
	acquirePlanSQL = planSQL + `, set_config('lock_timeout', '1s', true), ` + durableSQL

	// timelineSQL returns the timeline, which changes when a standby is promoted.
	timelineSQL = `select pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8)`

	// noteIncarnationSQL records the start of an incarnation: $1 its timeline, '' if not known. After a failover, the record of
	// which processes are alive may be old for a while, even if the new server crashes in that time; an unknown timeline may mean a
	// failover.
	noteIncarnationSQL = `
with new as (
	insert into {incarnations} (incarnation, failover)
	select {incarnation}(), $1::text = '' or m.timeline <> '' and m.timeline <> $1::text
		or coalesce(m.timeline_at > clock_timestamp() - interval '1 hour', false) from {meta} m
	on conflict do nothing returning 1
)
update {meta} set timeline = $1::text, timeline_at = case when timeline <> '' then clock_timestamp() end
where timeline <> $1::text and exists (select from new)`

	// restoreLeasesSQL recreates the lease rows that a crash removed, without an incarnation. $1 relay, $2 partitions.
	restoreLeasesSQL = `
insert into {leases} (relay, partition) select p.relay, p.partition from {relay_partitions} p
where p.relay = $1::text and p.partition = any($2::int2[])
	and not exists (select from {leases} l where l.relay = p.relay and l.partition = p.partition)
on conflict do nothing`

	// acquireSQL grants free leases by the rules of store.Leases. It skips a lease whose row a settlement or a transaction has
	// locked, for the next call. $1 relay, $2 owner, $3 partitions, $4 tokens, $5 resume, $6 the number of partitions of the
	// outbox, $7 kind, '' for any.
	acquireSQL = `
with want as materialized (
	select * from unnest($3::int2[], $4::text[], $5::bool[]) as w (partition, token, resume)
), settled_down as materialized (
	select clock_timestamp() >= i.began_at + (select max(r.ttl) from {relays} r where r.relay = $1::text)
		or not i.failover and not exists (
			select from {relays} r where r.relay = $1::text and r.owner <> $2::text and r.alive_until > clock_timestamp()) as yes
	from {incarnations} i where i.incarnation = {incarnation}()
), free as materialized (
	select l.partition from {leases} l join want w using (partition)
	where l.relay = $1::text and {partitions}() = $6::int4 and ($7::text = '' or exists (select from {relay_partitions} g
		where g.relay = l.relay and g.partition = l.partition and ` + kindSQL + ` = $7::text)) and case when l.incarnation = {incarnation}()
		then l.owner in ('', $2::text) or not ` + ownerLivesSQL + `
		else w.resume or coalesce((select yes from settled_down), false) end
	order by l.partition for update of l skip locked
)
update {leases} l set owner = $2::text, token = w.token, incarnation = {incarnation}()
from free f join want w using (partition) where l.relay = $1::text and l.partition = f.partition
returning l.partition::int4, l.token`

	// latestSQL reads kinds and cursors: $1 relay, $2 partitions. It is a separate statement after acquireSQL, whose snapshot may
	// be older than the last settlement.
	latestSQL = `
select ` + kindSQL + `, c.* from unnest($2::int2[]) as p (partition)
join {relay_partitions} g on g.relay = $1::text and g.partition = p.partition cross join lateral (
	select c.partition::int4, c.n, c.position, c.snapshot::text, coalesce(c.ceiling::text, ''),
		coalesce(c.page_snapshot::text, ''), coalesce(c.page, 0)
	from {cursors} c where c.relay = $1::text and c.partition = p.partition order by c.n desc limit 1
) as c`
)

// Acquire implements store.Leases.
func (s *Store) Acquire(ctx context.Context, name string, owner store.Owner, req store.AcquireRequest) ([]store.Lease, error) {
	n, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	a := acquisition{store: s, relay: name, kind: req.Kind, owner: owner, ttl: req.TTL, partitions: n, maxHeld: req.MaxHeld}
	if a.topics, err = stored.Topics(owner.Topics); err != nil {
		return nil, err
	}
	for _, c := range req.Claims {
		if c.Partition < 0 || c.Partition >= n {
			return nil, fmt.Errorf("acquire: there is no partition %d, the outbox has %d", c.Partition, n)
		}
		a.numbers, a.tokens, a.resume = append(a.numbers, int16(c.Partition)), append(a.tokens, c.Token), append(a.resume, c.Resume)
	}
	if err := s.checkRestored(ctx); err != nil {
		return nil, err
	}
	if err := s.pool.QueryRow(ctx, timelineSQL).Scan(&a.timeline); code(err) != "" {
		a.timeline = "" // the server does not report it
	} else if err != nil {
		return nil, translate("acquire partitions of relay "+name, err)
	}
	for {
		_, begun := s.begun.Load(name)
		if !begun {
			if err := s.begin(ctx, name, n, req); err != nil {
				return nil, translate("begin relay "+name, err)
			}
			s.begun.Store(name, true)
		}
		known, err := a.run(ctx)
		if err == nil && len(a.leases) < len(a.numbers) {
			s.endStalled(ctx, &a)
		}
		if err != nil || known || !begun {
			return a.leases, translate("acquire partitions of relay "+name, err)
		}
		s.begun.Delete(name) // an operator removed this relay meanwhile, or the database was restored from before it began
	}
}

// acquisition is one call of Acquire.
type acquisition struct {
	store      *Store
	relay      string
	kind       store.Kind // "" for any
	owner      store.Owner
	topics     string
	ttl        time.Duration
	registers  int // statements that register the owner
	timeline   string
	partitions int
	numbers    []int16
	tokens     []string
	resume     []bool
	maxHeld    int
	leases     []store.Lease
	refused    bool // another process is granting
}

// run also reports whether the relay is known, if any partition was requested.
func (a *acquisition) run(ctx context.Context) (known bool, err error) {
	s := a.store
	known, err = retry(func() (bool, error) {
		results, err := implicit(ctx, s.pool, s.sql.acquirePlan, func(b *pgx.Batch) {
			a.registers = s.registration(b, a.relay, a.owner, a.topics, a.ttl)
			b.Queue(s.sql.noteIncarnation, a.timeline)
			b.Queue(s.sql.restoreLeases, a.relay, a.numbers)
			b.Queue(s.sql.acquire, a.relay, a.owner.ID, a.numbers, a.tokens, a.resume, a.partitions, string(a.kind))
			b.Queue(s.sql.latest, a.relay, a.numbers)
			b.Queue(s.sql.parkedState, a.relay, a.numbers, stored.HeldLimit(a.maxHeld))
			b.Queue(s.sql.filters)
		})
		if err != nil {
			return false, err
		}
		known, err := a.read(results)
		if closeErr := results.Close(); err == nil {
			err = closeErr
		}
		return known, err
	})
	if code(err) == lockNotAvailable { // another process is granting, or was paused while granting; ask again soon
		a.leases, a.refused = nil, true
		return true, nil
	}
	return known, err
}

// read stores the leases gained, and reports whether the requested partitions have cursors.
func (a *acquisition) read(results pgx.BatchResults) (known bool, err error) {
	for range a.registers + 2 {
		if _, err := results.Exec(); err != nil {
			return false, err
		}
	}
	rows, err := results.Query()
	if err != nil {
		return false, err
	}
	gained := make(map[int]*store.Lease)
	var partition int
	var token string
	if _, err = pgx.ForEachRow(rows, []any{&partition, &token}, func() error {
		gained[partition] = &store.Lease{Partition: partition, Owner: a.owner.ID, Token: token}
		return nil
	}); err != nil {
		return false, err
	}
	cursors, err := a.readCursors(results, gained)
	if err != nil {
		return false, err
	}
	if rows, err = results.Query(); err != nil {
		return false, err
	}
	err = readParkedState(rows, func(partition int) *store.ParkedState {
		if l := gained[partition]; l != nil {
			return &l.Parked
		}
		return &store.ParkedState{}
	})
	if err != nil {
		return false, err
	}
	if rows, err = results.Query(); err != nil {
		return false, err
	}
	filters, err := readFilters(rows)
	filter := store.TopicFilterOf(a.relay, filters)
	a.leases = nil
	for _, n := range a.numbers {
		if l := gained[int(n)]; l != nil {
			l.Filter = filter
			stored.CutHeld(&l.Parked, a.maxHeld)
			a.leases = append(a.leases, *l)
		}
	}
	return cursors > 0 || len(a.numbers) == 0, err
}

// readCursors adds the cursors to the leases gained, and returns how many of the requested partitions have one.
func (a *acquisition) readCursors(results pgx.BatchResults, gained map[int]*store.Lease) (n int, err error) {
	rows, err := results.Query()
	if err != nil {
		return 0, err
	}
	var kind store.Kind
	var partition int
	var c cursor
	var number int64
	_, err = pgx.ForEachRow(rows, []any{&kind, &partition, &number, &c.position, &c.snapshot, &c.ceiling, &c.upTo, &c.page}, func() error {
		n++
		if l := gained[partition]; l != nil {
			if l.Settled = number; kind == store.KindRelay {
				l.Cursor = c.encode()
			}
		}
		return kind.Check(a.kind)
	})
	return n, err
}

// begin creates the relay's cursors unless they exist. It is READ COMMITTED: a stricter transaction would fail again and again
// while other processes begin the relay.
func (s *Store) begin(ctx context.Context, name string, partitions int, req store.AcquireRequest) error {
	position, snapshot, kind := int64(0), seesNothing, cmp.Or(req.Kind, store.KindRelay)
	if kind == store.KindConsumer {
		position, snapshot = consumerPosition, seesAll
	} else if req.FromNow {
		if err := s.pool.QueryRow(ctx, s.present()).Scan(&snapshot, &position); err != nil {
			return err
		}
	}
	_, err := retry(func() (struct{}, error) {
		return struct{}{}, s.runQueries(ctx, query{sql: s.sql.begin, args: []any{name, partitions, position, snapshot, string(kind)}})
	})
	return err
}

// present is presentSQL for this outbox.
func (s *Store) present() string { return fmt.Sprintf(presentSQL, s.names.table("log_seq_seq")) }
