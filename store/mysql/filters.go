package mysqlstore

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	// registeredSQL reports whether process ?2 of relay ?1 is registered with the topics ?3 and its filter counts. ?4 is how long
	// a filter counts after its process has ended.
	registeredSQL = `EXISTS (SELECT 1 FROM {prefix}relays r
		JOIN {prefix}relay_filters f ON f.relay = r.relay AND f.generation = r.generation
		WHERE r.relay = ?1 AND r.owner = ?2 AND f.topics = ?3 AND r.alive_until > {now} - ?4)`
	isRegisteredSQL = `SELECT ` + registeredSQL
	// generationsSQL reads the generation of a filter and the highest generation among the relay's processes whose filters count.
	// The parameters are those of registeredSQL.
	generationsSQL = `SELECT
		COALESCE((SELECT MAX(generation) FROM {prefix}relay_filters WHERE relay = ?1 AND topics = ?3), 0),
		COALESCE((SELECT MAX(generation) FROM {prefix}relays WHERE relay = ?1 AND alive_until > {now} - ?4), 0)`
	newFilterSQL = `INSERT IGNORE INTO {prefix}relay_filters (relay, generation, topics, registered_at)
		SELECT ?1, COALESCE(MAX(f.generation), 0) + 1, ?2, {now} FROM {prefix}relay_filters f WHERE f.relay = ?1`
	useFilterSQL = `UPDATE {prefix}relay_filters SET registered_at = {now} WHERE relay = ?1 AND generation = ?2`
	registerSQL  = `INSERT INTO {prefix}relays (relay, owner, host, version, started_at, seen_at, alive_until, ttl, member, generation)
		VALUES (?1, ?2, ?3, ?4, {now}, {now}, {now} + ?5, ?5, FALSE, ?6)
		ON DUPLICATE KEY UPDATE alive_until = {now} + ?5, ttl = ?5, generation = ?6`
	fenceOthersSQL = `UPDATE {prefix}cursors SET token = '' WHERE relay = ?1 AND partition_id IN ?3 AND owner <> ?2`
	// filtersSQL reads the filter in effect of each relay. A relay that began without registering one takes everything; a
	// consumer takes nothing. ?3 is how long a filter counts after its process has ended.
	filtersSQL = `SELECT g.relay AS relay, COALESCE(
			(SELECT f.topics FROM {prefix}relays r JOIN {prefix}relay_filters f ON f.relay = r.relay AND f.generation = r.generation
				WHERE r.relay = g.relay AND r.alive_until > {now} - ?3 ORDER BY f.generation DESC LIMIT 1),
			(SELECT f.topics FROM {prefix}relay_filters f WHERE f.relay = g.relay ORDER BY f.registered_at DESC, f.generation DESC LIMIT 1),
			'["*"]') AS topics
		FROM (SELECT relay FROM {prefix}relay_filters UNION SELECT relay FROM {prefix}cursors WHERE partition_id = 0) g
		WHERE NOT EXISTS (SELECT 1 FROM {prefix}cursors k WHERE k.relay = g.relay AND k.partition_id = 0 AND k.kind = 'consumer')`
	// countUnroutedSQL: ?1 relay, ?2 partition, ?3 now; %s are rows of countUnroutedRow.
	countUnroutedSQL = `INSERT INTO {prefix}unrouted (relay, topic, partition_id, message_count, first_at, last_at)
		SELECT ?1, new_topic, ?2, new_count, ?3, ?3 FROM (%s) i
		ON DUPLICATE KEY UPDATE message_count = message_count + new_count, last_at = ?3`
	countUnroutedRow = `SELECT ? AS new_topic, ? AS new_count`
	// unroutedSQL: each relay sees every message, so the largest of their counts is the number of messages.
	unroutedSQL = `SELECT topic, MAX(n), MIN(first_at), MAX(last_at) FROM (
			SELECT relay, topic, CAST(SUM(message_count) AS SIGNED) AS n, MIN(first_at) AS first_at, MAX(last_at) AS last_at
			FROM {prefix}unrouted GROUP BY relay, topic) r
		GROUP BY topic ORDER BY 2 DESC, topic LIMIT ?1`
	removeUnroutedSQL = `DELETE FROM {prefix}unrouted WHERE last_at <= {now} - ?1`
)

// filterKept is how long the filter of a process counts after the process has ended.
var filterKept = store.FilterKept.Microseconds()

// register registers a process with its filter. If the filter takes effect, the leases of all other processes end. All leases are
// locked before anything is written, so that none is granted under the old filter, and no heartbeat waits.
func (s *Store) register(ctx context.Context, name string, owner store.Owner, topics string, ttl time.Duration) error {
	var begun, effective bool
	err := s.write(ctx, "register the filter of relay "+name, func(t txn) error {
		leases, err := stored.Column[int](ctx, t.query, lockRelaySQL, name)
		if err != nil {
			return err
		}
		var generation, inEffect int
		args := []any{name, owner.ID, topics, filterKept}
		for generation == 0 { // 0 again if another process has given the number to another filter
			if err := t.get(ctx, generationsSQL, args, &generation, &inEffect); err != nil {
				return err
			}
			if generation == 0 {
				if _, err := t.exec(ctx, newFilterSQL, name, topics); err != nil {
					return err
				}
			}
		}
		begun, effective = len(leases) > 0, generation > inEffect
		if begun && effective {
			if _, err := t.exec(ctx, fenceOthersSQL, name, owner.ID, leases); err != nil {
				return err
			}
		}
		if _, err := t.exec(ctx, registerSQL, name, owner.ID, owner.Host, owner.Version, ttl.Microseconds(), generation); err != nil {
			return err
		}
		_, err = t.exec(ctx, useFilterSQL, name, generation)
		return err
	})
	if err != nil || begun || !effective {
		return err
	}
	// The relay may have begun in the meantime, with a lease granted under the old filter.
	return s.write(ctx, "register the filter of relay "+name, func(t txn) error {
		leases, err := stored.Column[int](ctx, t.query, lockRelaySQL, name)
		if err == nil && len(leases) > 0 {
			_, err = t.exec(ctx, fenceOthersSQL, name, owner.ID, leases)
		}
		return err
	})
}

// registered registers a process unless it is already registered.
func (s *Store) registered(ctx context.Context, name string, owner store.Owner, ttl time.Duration) error {
	topics, err := stored.Topics(owner.Topics)
	if err != nil || topics == "" {
		return err
	}
	var is bool
	if err := s.pooled().get(ctx, isRegisteredSQL, []any{name, owner.ID, topics, filterKept}, &is); err != nil || is {
		return s.cfg.explain("register the filter of relay "+name, err)
	}
	return s.register(ctx, name, owner, topics, ttl)
}

// filters returns the filters in effect, by relay.
func (t txn) filters(ctx context.Context) (map[string][]string, error) {
	return stored.Filters(ctx, t.query, filtersSQL, "", "", filterKept)
}

// countUnrouted adds a settlement's counts of messages that no relay takes.
func (t txn) countUnrouted(ctx context.Context, name string, st store.Settlement) error {
	rows := make([]string, len(st.Unrouted))
	for i, u := range st.Unrouted {
		rows[i] = render(countUnroutedRow, []any{u.Topic, u.Count})
	}
	_, err := t.execRows(ctx, countUnroutedSQL, rows, name, st.Partition, t.now)
	return err
}
