package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// heartbeatSQL: $1 relay, $2 owner, $3 host, $4 version, $5 ttl in microseconds, $6 the number of partitions that the owner knows
// (with a different number it does not count as alive), $7 its topics, $8 the state of its destination. If the topics are not
// registered for the owner, or no longer count, the row of the owner does not change.
//
// Besides leases, the result has rows for these partition numbers:
//
//   - -1: the present number of partitions as owner, the number of owners alive as token. The result is read from before the
//     changes, so it counts the caller explicitly.
//   - -2: the filters in effect, with the relay as owner and the topics as token.
//   - -3: whether the topics are registered, as token.
const heartbeatSQL = `
with registered as materialized (
	select $7::text = '' or exists (
		select from {relays} r join {relay_filters} f using (relay, generation)
		where r.relay = $1::text and r.owner = $2::text and f.topics = $7::text and ` + countedSQL + `) as yes
), alive as (
	insert into {relays} as r (relay, owner, host, version, started_at, seen_at, alive_until, ttl, member, destination)
	select $1::text, $2::text, $3::text, $4::text, clock_timestamp(), clock_timestamp(),
		clock_timestamp() + $5::float8 * interval '1 microsecond', $5::float8 * interval '1 microsecond', true, $8::text
	from registered where yes and {partitions}() = $6::int4
	on conflict (relay, owner) do update set host = excluded.host, version = excluded.version,
		seen_at = excluded.seen_at, alive_until = excluded.alive_until, ttl = excluded.ttl, member = true,
		destination = excluded.destination
), gone as (
	delete from {relays} where relay = $1::text and owner <> $2::text and alive_until < clock_timestamp() - interval '1 day'
)
select -3::int4 as partition, '' as owner, yes::text as token from registered
union all
select -2::int4, f.relay, f.topics from (` + filtersSQL + `) as f
union all
select -1::int4, {partitions}()::text, (1 + count(*))::text from {relays}
where relay = $1::text and owner <> $2::text and member and alive_until > clock_timestamp()
union all
select l.partition::int4, l.owner, l.token from {leases} l
where l.relay = $1::text and ` + heldSQL + ` and (l.owner = $2::text or ` + ownerLivesSQL + `)
order by 1`

// Heartbeat implements store.Leases.
func (s *Store) Heartbeat(ctx context.Context, name string, owner store.Owner, ttl time.Duration) (store.View, error) {
	n, err := s.open(ctx)
	if err != nil {
		return store.View{}, err
	}
	topics, err := stored.Topics(owner.Topics)
	if err != nil {
		return store.View{}, err
	}
	destination, err := stored.Report(owner)
	if err != nil {
		return store.View{}, err
	}
	heartbeat := func() (store.View, bool, error) { return s.heartbeat(ctx, name, owner, topics, destination, ttl, n) }
	v, registered, err := heartbeat()
	if err == nil && !registered {
		if err = s.register(ctx, name, owner, topics, ttl); err == nil {
			v, registered, err = heartbeat()
		}
		if err == nil && !registered {
			err = errNotRegistered
		}
	}
	return v, translate("heartbeat of relay "+name, err)
}

// errNotRegistered: an operator removed the relay between two statements. The next heartbeat registers it again.
var errNotRegistered = errors.New("the relay's filter was removed meanwhile")

// heartbeat is one statement, on the connection reserved for heartbeats. It does nothing if the process is not registered.
func (s *Store) heartbeat(
	ctx context.Context, name string, owner store.Owner, topics, destination string, ttl time.Duration, n int,
) (v store.View, registered bool, err error) {
	heartbeat := func(on querier) (store.View, error) {
		rows, err := on.Query(ctx, s.sql.heartbeat, name, owner.ID, owner.Host, owner.Version, ttl.Microseconds(), n, topics,
			destination)
		if err != nil {
			return store.View{}, err
		}
		var v store.View
		var p store.PartitionView
		filters := make(map[string][]string)
		_, err = pgx.ForEachRow(rows, []any{&p.Partition, &p.Owner, &p.Token}, func() (err error) {
			switch p.Partition {
			case -3:
				registered = p.Token == "true"
			case -2:
				filters[p.Owner], err = stored.ParseTopics(p.Token)
			case -1:
				if v.Alive, err = strconv.Atoi(p.Token); err == nil && p.Owner != strconv.Itoa(n) {
					err = fmt.Errorf("%w: from %d to %s", store.ErrRepartitioned, n, p.Owner)
				}
			default:
				v.Partitions = append(v.Partitions, p)
			}
			return err
		})
		v.Filter = store.TopicFilterOf(name, filters)
		return v, err
	}
	v, err = retry(func() (v store.View, err error) {
		err = s.heartbeats.run(ctx, ttl/2, func(on querier) (err error) {
			v, err = heartbeat(on)
			return err
		})
		return v, err
	})
	return v, registered, err
}
