package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	// countedSQL says whether the filter of process r counts: its lease time ended less than store.FilterKept ago, if at all.
	countedSQL = `r.generation > 0 and r.alive_until > clock_timestamp() - interval '1 hour'`

	// filtersSQL returns the filter in effect of each relay. A relay that began without registering one takes everything; a
	// consumer takes nothing.
	filtersSQL = `
select g.relay, coalesce((
		select f.topics from {relays} r join {relay_filters} f using (relay, generation)
		where r.relay = g.relay and ` + countedSQL + ` order by f.generation desc limit 1), (
		select f.topics from {relay_filters} f where f.relay = g.relay order by f.registered_at desc, f.generation desc limit 1),
	'["*"]') as topics
from (
	(select f.relay from {relay_filters} f union select p.relay from {relay_partitions} p where p.partition = 0)
	except ` + consumerNamesSQL + `) as g`

	// The registration of a process follows oneAcquirerSQL. $1 relay, $2 owner, $3 topics, '' for a process without a filter.
	//
	// newFilterSQL gives the filter a generation unless it has one, and useFilterSQL records that another process uses it.
	newFilterSQL = `
insert into {relay_filters} (relay, generation, topics) select $1::text, coalesce(max(f.generation), 0) + 1, $2::text
from {relay_filters} f where f.relay = $1::text having $2::text <> '' and count(*) filter (where f.topics = $2::text) = 0`
	useFilterSQL = `
update {relay_filters} f set registered_at = clock_timestamp() where f.relay = $1::text and f.topics = $3::text and not exists (
	select from {relays} r where r.relay = $1::text and r.owner = $2::text and r.generation = f.generation)`
	// fenceOthersSQL ends the leases of all other owners if the filter takes effect. It does not wait for settlements that have
	// already checked their leases: the messages that they move a cursor past were read before.
	fenceOthersSQL = `
with others as materialized (
	select l.partition from {leases} l
	where l.relay = $1::text and l.owner <> $2::text
		and (select f.generation from {relay_filters} f where f.relay = $1::text and f.topics = $3::text)
			> (select coalesce(max(r.generation), 0) from {relays} r where r.relay = $1::text and ` + countedSQL + `)
	order by l.partition for no key update of l
)
update {leases} l set token = '' from others o where l.relay = $1::text and l.partition = o.partition`
	// registerSQL: $4 host, $5 version, $6 ttl in microseconds.
	registerSQL = `
insert into {relays} as r (relay, owner, host, version, started_at, seen_at, alive_until, ttl, member, generation)
select $1::text, $2::text, $4::text, $5::text, clock_timestamp(), clock_timestamp(),
	clock_timestamp() + $6::float8 * interval '1 microsecond', $6::float8 * interval '1 microsecond', false, coalesce((
		select f.generation from {relay_filters} f where f.relay = $1::text and f.topics = $3::text), 0)
on conflict (relay, owner) do update set alive_until = excluded.alive_until, ttl = excluded.ttl, generation = excluded.generation`

	// countUnroutedSQL: $1 relay, then arrays: $2 partitions, $3 topics, $4 counts.
	countUnroutedSQL = `
insert into {unrouted} as u (relay, topic, partition, count, first_at, last_at)
select $1::text, i.topic, i.partition, i.count, clock_timestamp(), clock_timestamp()
from unnest($2::int2[], $3::text[], $4::int8[]) as i (partition, topic, count) order by i.partition, i.topic
on conflict (relay, topic, partition) do update set count = u.count + excluded.count, last_at = excluded.last_at`

	// unroutedSQL: each relay sees every message, so the largest count of any relay is the number of messages. $1 limit.
	unroutedSQL = `
select topic, max(n)::int8, min(first_at), max(last_at) from (
	select relay, topic, sum(count) as n, min(first_at) as first_at, max(last_at) as last_at from {unrouted} group by relay, topic) as r
group by topic order by 2 desc, topic limit $1::int8`

	// removeUnroutedSQL: $1 how long ago the last message was, in microseconds.
	removeUnroutedSQL = `delete from {unrouted} where last_at <= clock_timestamp() - $1::float8 * interval '1 microsecond'`
)

// registration queues the statements that register a process and returns how many there are.
func (s *Store) registration(b *pgx.Batch, name string, owner store.Owner, topics string, ttl time.Duration) int {
	b.Queue(s.sql.oneAcquirer, name)
	b.Queue(s.sql.newFilter, name, topics)
	b.Queue(s.sql.useFilter, name, owner.ID, topics)
	b.Queue(s.sql.fenceOthers, name, owner.ID, topics)
	b.Queue(s.sql.register, name, owner.ID, topics, owner.Host, owner.Version, ttl.Microseconds())
	return 5
}

// register registers a process whose filter is unknown or no longer counts.
func (s *Store) register(ctx context.Context, name string, owner store.Owner, topics string, ttl time.Duration) error {
	_, err := retry(func() (struct{}, error) {
		results, err := implicit(ctx, s.pool, s.sql.acquirePlan, func(b *pgx.Batch) { s.registration(b, name, owner, topics, ttl) })
		if err == nil {
			err = results.Close()
		}
		return struct{}{}, err
	})
	return err
}

func readFilters(rows pgx.Rows) (map[string][]string, error) {
	out := make(map[string][]string)
	var name, text string
	_, err := pgx.ForEachRow(rows, []any{&name, &text}, func() (err error) {
		out[name], err = stored.ParseTopics(text)
		return err
	})
	return out, err
}

// unroutedInput holds, as columns, the counts of messages in settlements that no relay takes.
type unroutedInput struct {
	partitions []int16
	topics     []string
	counts     []int64
}

func (u *unroutedInput) add(st *store.Settlement) {
	for _, c := range st.Unrouted {
		u.partitions, u.topics, u.counts = append(u.partitions, int16(st.Partition)), append(u.topics, c.Topic), append(u.counts, c.Count)
	}
}

// removeUnrouted removes the counts of topics whose last message is long past.
func (s *Store) removeUnrouted(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, s.names.expand(removeUnroutedSQL), store.UnroutedKept.Microseconds())
	return translate("remove counts of unrouted messages", err)
}
