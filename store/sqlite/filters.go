package sqlite

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	// generationsSQL returns the generation of a filter, the highest generation among the relay's processes whose filters count,
	// that of the owner, and the last one assigned. ?1 relay, ?2 owner, ?3 topics, ?4 since when a process must have been alive.
	generationsSQL = `SELECT
		coalesce((SELECT generation FROM {prefix}relay_filters WHERE relay = ?1 AND topics = ?3), 0),
		coalesce((SELECT max(generation) FROM {prefix}relays WHERE relay = ?1 AND alive_until > ?4), 0),
		coalesce((SELECT generation FROM {prefix}relays WHERE relay = ?1 AND owner = ?2), 0),
		coalesce((SELECT max(generation) FROM {prefix}relay_filters WHERE relay = ?1), 0)`
	registerSQL = `INSERT INTO {prefix}relay_filters (relay, generation, topics, registered_at) VALUES (?1, ?2, ?3, ?4)
		ON CONFLICT (relay, generation) DO UPDATE SET registered_at = excluded.registered_at`
	fenceOthersSQL = `UPDATE {prefix}cursors SET token = '' WHERE relay = ?1 AND owner <> ?2`
	// filtersSQL returns the filter in effect of each relay. A relay that began without registering one takes everything; a
	// consumer takes nothing. ?1 since when a process must have been alive.
	filtersSQL = `SELECT g.relay, coalesce(
			(SELECT f.topics FROM {prefix}relays r JOIN {prefix}relay_filters f ON f.relay = r.relay AND f.generation = r.generation
				WHERE r.relay = g.relay AND r.alive_until > ?1 ORDER BY f.generation DESC LIMIT 1),
			(SELECT f.topics FROM {prefix}relay_filters f WHERE f.relay = g.relay ORDER BY f.registered_at DESC, f.generation DESC LIMIT 1),
			'["*"]')
		FROM (SELECT relay FROM {prefix}relay_filters UNION SELECT relay FROM {prefix}cursors WHERE partition = 0
			EXCEPT ` + consumerNamesSQL + `) g`
	countUnroutedSQL = `INSERT INTO {prefix}unrouted (relay, topic, partition, count, first_at, last_at) VALUES (?1, ?2, ?3, ?4, ?5, ?5)
		ON CONFLICT (relay, topic, partition) DO UPDATE SET count = count + excluded.count, last_at = excluded.last_at`
	// unroutedSQL: each relay sees every message, so the largest count of any relay is the number of messages.
	unroutedSQL = `SELECT topic, max(n), min(first), max(last) FROM (
			SELECT relay, topic, sum(count) AS n, min(first_at) AS first, max(last_at) AS last FROM {prefix}unrouted GROUP BY relay, topic)
		GROUP BY topic ORDER BY 2 DESC, topic LIMIT ?1`
	removeUnroutedSQL = `DELETE FROM {prefix}unrouted WHERE last_at <= ?1`
)

// counted returns since when a process must have been alive for its filter to count.
func (t txn) counted() int64 { return t.now - store.FilterKept.Microseconds() }

// register records that a process is alive, with its filter, and that this file is in use. If the filter takes effect, it ends
// the leases of all other owners.
func (t txn) register(ctx context.Context, name string, owner store.Owner, ttl time.Duration, member bool) error {
	if err := t.beginFile(ctx); err != nil {
		return err
	}
	topics, err := stored.Topics(owner.Topics)
	if err != nil {
		return err
	}
	destination, err := stored.Report(owner)
	if err != nil {
		return err
	}
	var generation, inEffect, own, last int64
	if topics != "" {
		args := []any{name, owner.ID, topics, t.counted()}
		if err := t.get(ctx, generationsSQL, args, &generation, &inEffect, &own, &last); err != nil {
			return err
		}
		if generation == 0 {
			generation = last + 1
		}
		if generation != own {
			if _, err := t.exec(ctx, registerSQL, name, generation, topics, t.now); err != nil {
				return err
			}
		}
	}
	if _, err := t.exec(ctx, heartbeatSQL, name, owner.ID, owner.Host, owner.Version, t.now, ttl.Microseconds(), member, generation,
		destination); err != nil {
		return err
	}
	if generation > inEffect {
		_, err = t.exec(ctx, fenceOthersSQL, name, owner.ID)
	}
	return err
}

// filters returns those in effect, by relay.
func (t txn) filters(ctx context.Context) (map[string][]string, error) {
	return stored.Filters(ctx, t.query, filtersSQL, t.counted())
}

// filter returns that of a relay.
func (t txn) filter(ctx context.Context, name string) (store.TopicFilter, error) {
	all, err := t.filters(ctx)
	return store.TopicFilterOf(name, all), err
}

// countUnrouted adds a settlement's counts of messages that no relay takes.
func (t txn) countUnrouted(ctx context.Context, name string, st *store.Settlement) error {
	for _, u := range st.Unrouted {
		if _, err := t.exec(ctx, countUnroutedSQL, name, u.Topic, st.Partition, u.Count, t.now); err != nil {
			return err
		}
	}
	return nil
}

// removeUnrouted removes the counts of topics whose last message is long past.
func (s *Store) removeUnrouted(ctx context.Context) error {
	return s.write(ctx, "remove counts of unrouted messages", relaxed, func(t txn) error {
		_, err := t.exec(ctx, removeUnroutedSQL, t.now-store.UnroutedKept.Microseconds())
		return err
	})
}
