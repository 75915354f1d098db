package postgres

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/relay"
)

// Leases are locked in the order of their partitions, by everybody, so that nobody waits in a circle.

// heartbeatSQL: $1 relay, $2 owner, $3 host, $4 version, $5 ttl in microseconds, $6 the number of partitions that the owner
// knows; with another one it does not count as alive. The first row (partition -1) has the number of owners alive as its
// epoch and the present number of partitions as its owner. The result is read from before the changes, so it counts the caller itself in.
const heartbeatSQL = `
with mine as materialized (
	select partition from {leases} where relay = $1::text and owner = $2::text order by partition for no key update
), renewed as (
	update {leases} l set lease_until = clock_timestamp() + $5::int8 * interval '1 microsecond'
	from mine where l.relay = $1::text and l.partition = mine.partition
), alive as (
	insert into {relays} as r (relay, owner, host, version, started_at, seen_at, alive_until)
	select $1::text, $2::text, $3::text, $4::text, clock_timestamp(), clock_timestamp(),
		clock_timestamp() + $5::int8 * interval '1 microsecond' where {partitions}() = $6::int4
	on conflict (relay, owner) do update set host = excluded.host, version = excluded.version,
		seen_at = excluded.seen_at, alive_until = excluded.alive_until
), gone as (
	delete from {relays} where relay = $1::text and owner <> $2::text and alive_until < clock_timestamp() - interval '1 day'
)
select -1::int4 as partition, {partitions}()::text as owner, 1 + count(*) as epoch from {relays}
where relay = $1::text and owner <> $2::text and alive_until > clock_timestamp()
union all
select partition::int4, case when owner = $2::text or lease_until > clock_timestamp() then owner else '' end, epoch
from {leases} where relay = $1::text and epoch > 0
order by 1`

// Heartbeat implements relay.LeaseStore.
func (s *Store) Heartbeat(ctx context.Context, name string, owner relay.Owner, ttl time.Duration) (relay.View, error) {
	n, err := s.open(ctx)
	if err != nil {
		return relay.View{}, err
	}
	if err := s.checkRestored(ctx); err != nil {
		return relay.View{}, err
	}
	v, err := retry(func() (relay.View, error) {
		rows, err := s.pool.Query(ctx, s.sql.heartbeat, name, owner.ID, owner.Host, owner.Version, ttl.Microseconds(), n)
		if err != nil {
			return relay.View{}, err
		}
		var v relay.View
		var p relay.PartitionView
		_, err = pgx.ForEachRow(rows, []any{&p.Partition, &p.Owner, &p.Epoch}, func() error {
			if p.Partition >= 0 {
				v.Partitions = append(v.Partitions, p)
				return nil
			}
			v.Alive = int(p.Epoch)
			if p.Owner != strconv.Itoa(n) {
				return fmt.Errorf("%w: from %d to %s", relay.ErrRepartitioned, n, p.Owner)
			}
			return nil
		})
		return v, err
	})
	return v, translate("heartbeat of relay "+name, err)
}

const (
	// beginSQL makes the rows of a relay that the outbox has never seen, for all partitions: a partition that nobody has
	// leased yet keeps its messages from being dropped too. $1 relay, $2 partitions, $3 position, $4 snapshot. The ceiling
	// is this transaction's id, which is assigned after $3 was read.
	beginSQL = `
with new as (
	insert into {leases} (relay, partition) select $1::text, p from generate_series(0, $2::int4 - 1) as p
	where {partitions}() = $2::int4
	on conflict do nothing returning partition
)
insert into {cursors} (relay, partition, n, position, snapshot, ceiling)
select $1::text, partition, 0, $3::int8, $4::text::pg_snapshot, pg_current_xact_id() from new`

	// presentSQL is where the log ends: every row that is visible in the snapshot has a sequence up to the second column.
	presentSQL = `select pg_current_snapshot()::text, case when is_called then last_value else 0 end::int8 from %s`

	// acquireSQL: $1 relay, $2 owner, $3 partitions, $4 ttl in microseconds, $5 the number of partitions of the outbox.
	acquireSQL = `
with free as materialized (
	select partition from {leases}
	where relay = $1::text and partition = any($3::int2[]) and (owner = '' or lease_until <= clock_timestamp())
		and {partitions}() = $5::int4
	order by partition for no key update
)
update {leases} l set owner = $2::text, epoch = l.epoch + 1,
	lease_until = clock_timestamp() + $4::int8 * interval '1 microsecond'
from free where l.relay = $1::text and l.partition = free.partition
returning l.partition::int4, l.epoch`

	// latestSQL reads cursors: $1 relay, $2 partitions. It is a statement of its own behind acquireSQL because that one may
	// have waited for a settlement, which its snapshot does not show.
	latestSQL = `
select c.* from unnest($2::int2[]) as p (partition) cross join lateral (
	select c.partition::int4, c.position, c.snapshot::text, coalesce(c.ceiling::text, ''),
		coalesce(c.page_snapshot::text, ''), coalesce(c.page, 0)
	from {cursors} c where c.relay = $1::text and c.partition = p.partition order by c.n desc limit 1
) as c`
)

// Acquire implements relay.LeaseStore.
func (s *Store) Acquire(ctx context.Context, name string, owner relay.Owner, partitions []int, ttl time.Duration,
	start relay.Start) ([]relay.Lease, error) {
	n, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	numbers := make([]int16, len(partitions))
	for i, p := range partitions {
		if p < 0 || p >= n {
			return nil, fmt.Errorf("acquire: there is no partition %d, the outbox has %d", p, n)
		}
		numbers[i] = int16(p)
	}
	for {
		_, begun := s.begun.Load(name)
		if !begun {
			if err := s.begin(ctx, name, n, start); err != nil {
				return nil, translate("begin relay "+name, err)
			}
			s.begun.Store(name, true)
		}
		leases, known, err := s.acquire(ctx, name, owner.ID, numbers, n, ttl)
		if err != nil || known || !begun {
			return leases, translate("acquire partitions of relay "+name, err)
		}
		s.begun.Delete(name) // an operator has let the outbox forget this relay since
	}
}

// acquire also says whether the relay is known, if any partition is asked for.
func (s *Store) acquire(ctx context.Context, name, owner string, numbers []int16, partitions int, ttl time.Duration) (
	leases []relay.Lease, known bool, err error) {
	leases, err = retry(func() ([]relay.Lease, error) {
		results, err := implicit(ctx, s.pool, planSQL, func(b *pgx.Batch) {
			b.Queue(s.sql.acquire, name, owner, numbers, ttl.Microseconds(), partitions)
			b.Queue(s.sql.latest, name, numbers)
		})
		if err != nil {
			return nil, err
		}
		leases, rows, err := readLeases(results, owner)
		known = rows > 0 || len(numbers) == 0
		if closeErr := results.Close(); err == nil {
			err = closeErr
		}
		return leases, err
	})
	return leases, known, err
}

// readLeases returns the leases gained, and how many of the partitions asked for have a cursor.
func readLeases(results pgx.BatchResults, owner string) (leases []relay.Lease, known int, err error) {
	rows, err := results.Query()
	if err != nil {
		return nil, 0, err
	}
	epochs := make(map[int]int64)
	var partition int
	var epoch int64
	if _, err = pgx.ForEachRow(rows, []any{&partition, &epoch}, func() error {
		epochs[partition] = epoch
		return nil
	}); err != nil {
		return nil, 0, err
	}
	if rows, err = results.Query(); err != nil {
		return nil, 0, err
	}
	var c cursor
	_, err = pgx.ForEachRow(rows, []any{&partition, &c.position, &c.snapshot, &c.ceiling, &c.upTo, &c.page}, func() error {
		known++
		if epoch := epochs[partition]; epoch > 0 {
			leases = append(leases, relay.Lease{Partition: partition, Owner: owner, Epoch: epoch, Cursor: c.encode()})
			delete(epochs, partition)
		}
		return nil
	})
	return leases, known, err
}

// begin makes the relay's cursors unless they exist. It is READ COMMITTED, since where others begin the relay at the same
// time it would fail again and again in a stricter transaction.
func (s *Store) begin(ctx context.Context, name string, partitions int, start relay.Start) error {
	position, snapshot := int64(0), seesNothing
	if start == relay.FromNow {
		if err := s.pool.QueryRow(ctx, s.present()).Scan(&snapshot, &position); err != nil {
			return err
		}
	}
	_, err := retry(func() (struct{}, error) {
		return struct{}{}, s.runQueries(ctx, query{sql: s.sql.begin, args: []any{name, partitions, position, snapshot}})
	})
	return err
}

// present is presentSQL for this outbox.
func (s *Store) present() string { return fmt.Sprintf(presentSQL, s.names.table("log_seq_seq")) }

// releaseSQL: $1 relay, $2 partitions, $3 owners, $4 epochs.
const releaseSQL = `
with mine as materialized (
	select l.partition from {leases} l
	join unnest($2::int2[], $3::text[], $4::int8[]) as i (partition, owner, epoch) using (partition, owner, epoch)
	where l.relay = $1::text order by l.partition for no key update of l
)
update {leases} l set owner = '', lease_until = null from mine where l.relay = $1::text and l.partition = mine.partition`

// Release implements relay.LeaseStore.
func (s *Store) Release(ctx context.Context, name string, leases []relay.Lease) error {
	if _, err := s.open(ctx); err != nil {
		return err
	}
	partitions, owners, epochs := []int16{}, []string{}, []int64{}
	for _, l := range leases {
		partitions = append(partitions, int16(l.Partition))
		owners = append(owners, l.Owner)
		epochs = append(epochs, l.Epoch)
	}
	_, err := retry(func() (struct{}, error) {
		_, err := s.pool.Exec(ctx, s.sql.release, name, partitions, owners, epochs)
		return struct{}{}, err
	})
	return translate("release partitions of relay "+name, err)
}

// leaveSQL: $1 relay, $2 owner.
const leaveSQL = `
with mine as materialized (
	select partition from {leases} where relay = $1::text and owner = $2::text order by partition for no key update
), released as (
	update {leases} l set owner = '', lease_until = null from mine where l.relay = $1::text and l.partition = mine.partition
)
update {relays} set alive_until = least(alive_until, clock_timestamp()) where relay = $1::text and owner = $2::text`

// Leave implements relay.LeaseStore.
func (s *Store) Leave(ctx context.Context, name string, owner relay.Owner) error {
	if _, err := s.open(ctx); err != nil {
		return err
	}
	_, err := retry(func() (struct{}, error) {
		_, err := s.pool.Exec(ctx, s.sql.leave, name, owner.ID)
		return struct{}{}, err
	})
	return translate("leave relay "+name, err)
}

// Partitions implements relay.LeaseStore.
func (s *Store) Partitions(ctx context.Context) (int, error) { return s.open(ctx) }
