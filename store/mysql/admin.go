package mysqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

var _ store.Administrator = (*Store)(nil)

const (
	livingSQL = `SELECT relay, owner, host FROM {prefix}relays WHERE (?1 = '' OR relay = ?1) AND alive_until > ?2
		ORDER BY relay, started_at LIMIT 1`

	// adminLockSeconds is how long Repartition waits for transactions that have published; new publishers wait too.
	adminLockSeconds = 3
	lockTimeoutSQL   = `SET SESSION lock_wait_timeout = ?`
)

// LOCK TABLES needs a lock for each alias of a table.
const lockTablesSQL = `LOCK TABLES {prefix}log WRITE, {prefix}log AS l WRITE, {prefix}meta WRITE, {prefix}cursors WRITE,
	{prefix}cursors AS c WRITE, {prefix}relays WRITE, {prefix}parked WRITE, {prefix}parked AS p WRITE, {prefix}held WRITE,
	{prefix}dead WRITE, {prefix}decisions WRITE, {prefix}meta AS m WRITE, {prefix}incarnations AS i READ`

// Repartition implements store.Administrator. It locks the tables, which needs the privilege LOCK TABLES, and moves all messages
// that are still in the log in one transaction. Errors: store.ErrAlive, store.ErrUndelivered, store.ErrInUse, ErrUnsuitable on a
// server without MD5() and those of the server.
func (s *Store) Repartition(ctx context.Context, n int) error {
	if n < 1 || n > store.MaxPartitions {
		return fmt.Errorf("repartition: %d partitions: want 1 to %d", n, store.MaxPartitions)
	}
	if err := s.checkHash(ctx); err != nil {
		return s.cfg.explain("repartition", err)
	}
	// Checked twice: first without locks, so that a refused call blocks nobody, then again under the locks.
	if err := s.read(ctx, "repartition", func(t txn) error { return t.checkIdle(ctx) }); err != nil {
		return err
	}
	err := s.locked(ctx, func(t txn) error {
		if err := t.checkIdle(ctx); err != nil {
			return err
		}
		return t.repartition(ctx, n)
	})
	if err != nil {
		return s.cfg.explain("repartition", err)
	}
	s.partitions.Store(int64(n))
	s.publishing.Store(0)
	s.Wake()
	return nil
}

// locked runs f in a transaction with all tables locked. It closes the connection afterwards, which discards the session's
// settings.
func (s *Store) locked(ctx context.Context, f func(txn) error) (err error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer discard(conn)
	t := txn{s: s, on: conn}
	for _, set := range []string{render(lockTimeoutSQL, []any{adminLockSeconds}), `SET SESSION autocommit = 0`,
		`SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED`} {
		if _, err := conn.ExecContext(ctx, set); err != nil {
			return err
		}
	}
	if _, err := t.exec(ctx, lockTablesSQL); err != nil {
		if s.cfg.passing(ctx, err) {
			return fmt.Errorf("%w: transactions that have used it, e.g. published, did not end within %d s; run this again when less is "+
				"going on, or find those that stay open in information_schema.innodb_trx: %w", store.ErrInUse, adminLockSeconds, err)
		}
		return err
	}
	if err = t.look(ctx); err == nil {
		err = f(t)
	}
	if err == nil {
		_, err = conn.ExecContext(ctx, `COMMIT`)
	}
	return err
}

const (
	allPlacesSQL = `SELECT relay, partition_id, position, gaps FROM {prefix}cursors WHERE kind = 'relay' ORDER BY relay, partition_id`
	// undeliveredSQL reports whether a partition has a message in one of the ranges %s that is not parked.
	undeliveredSQL = `SELECT EXISTS (SELECT 1 FROM {prefix}log l WHERE l.partition_id = ?2 AND (%s)
		AND NOT EXISTS (SELECT 1 FROM {prefix}parked p WHERE p.relay = ?1 AND p.seq = l.seq))`
)

// ahead returns the condition for the log rows that a cursor has not delivered.
func ahead(position int64, missing gaps) string {
	fresh := fmt.Sprintf(`l.seq > %d`, position)
	if missing = missing.upTo(position); len(missing) > 0 {
		return missing.condition(`l.seq`) + ` OR ` + fresh
	}
	return fresh
}

// cursorOfRelay is the cursor of a relay in a partition.
type cursorOfRelay struct {
	relay     string
	partition int
	position  int64
	gaps      gaps
}

func (t txn) cursorsOfRelays(ctx context.Context) ([]cursorOfRelay, error) {
	var out []cursorOfRelay
	err := t.each(ctx, allPlacesSQL, nil, func(rows *sql.Rows) error {
		var c cursorOfRelay
		var text string
		err := rows.Scan(&c.relay, &c.partition, &c.position, &text)
		if err == nil {
			c.gaps, err = parseGaps(text)
		}
		out = append(out, c)
		return err
	})
	return out, err
}

// checkIdle makes sure that no process works on the outbox and that every relay has delivered everything.
func (t txn) checkIdle(ctx context.Context) error {
	if err := t.checkStopped(ctx, ""); err != nil {
		return err
	}
	all, err := t.cursorsOfRelays(ctx)
	if err != nil {
		return err
	}
	for _, c := range all {
		var undelivered bool
		text := strings.Replace(undeliveredSQL, `%s`, ahead(c.position, c.gaps), 1)
		if err := t.get(ctx, text, []any{c.relay, c.partition}, &undelivered); err != nil {
			return err
		}
		if undelivered {
			return stored.Undelivered(c.relay, c.partition)
		}
	}
	return nil
}

// checkStopped makes sure that no process of a relay ("" for any relay) is alive.
func (t txn) checkStopped(ctx context.Context, name string) error {
	return stored.CheckStopped(ctx, t.query, livingSQL, name, t.now)
}

const (
	setPartitionsSQL = `UPDATE {prefix}meta SET value = ? WHERE name = 'partitions'`
	endSQL           = `SELECT GREATEST((SELECT value FROM {prefix}meta WHERE name = 'floor'), (SELECT COALESCE(MAX(seq), 0) FROM {prefix}log))`
	// knownRelaysSQL lists all relays with the values that their new cursors take over.
	knownRelaysSQL = `SELECT relay, MAX(kind), MAX(position), MAX(number), SUM(delivered), SUM(failed), MAX(settled_at)
		FROM {prefix}cursors GROUP BY relay`
	dropCursorsSQL = `DELETE FROM {prefix}cursors WHERE relay = ?`
	newCursorSQL   = `INSERT INTO {prefix}cursors (relay, partition_id, kind, position, gaps, number, delivered, failed, settled_at)
		VALUES (?, ?, ?, ?, '', ?, ?, ?, ?)`
	// partitionOfSQL computes postrider.PartitionOf for ? partitions, from the key or, without a key, from the ID.
	partitionOfSQL = `CONV(LEFT(MD5(IF(message_key = '', id, message_key)), 8), 16, 10) % ?`
)

// moveSQLs set the partition of every row for ? partitions.
var moveSQLs = []string{
	`UPDATE {prefix}log SET partition_id = ` + partitionOfSQL + ` WHERE partition_id >= 0`,
	`UPDATE {prefix}parked SET partition_id = ` + partitionOfSQL,
	`UPDATE {prefix}dead SET partition_id = ` + partitionOfSQL,
	`UPDATE {prefix}held SET partition_id = CONV(LEFT(MD5(message_key), 8), 16, 10) % ?`,
	`UPDATE {prefix}decisions SET partition_id = CONV(LEFT(MD5(IF(message_key = '', message_id, message_key)), 8), 16, 10) % ?`,
}

// oldCursors holds what the new cursors of a relay take over.
type oldCursors struct {
	relay, kind                                    string
	position, number, delivered, failed, settledAt int64
}

// repartition runs while the tables are locked. It moves every cursor to the end of the log, without a lease. Partition 0 takes
// over the counters.
func (t txn) repartition(ctx context.Context, n int) error {
	if _, err := t.exec(ctx, setPartitionsSQL, n); err != nil {
		return err
	}
	var end int64
	if err := t.get(ctx, endSQL, nil, &end); err != nil {
		return err
	}
	var known []oldCursors
	err := t.each(ctx, knownRelaysSQL, nil, func(rows *sql.Rows) error {
		var o oldCursors
		err := rows.Scan(&o.relay, &o.kind, &o.position, &o.number, &o.delivered, &o.failed, &o.settledAt)
		known = append(known, o)
		return err
	})
	if err != nil {
		return err
	}
	for _, o := range known {
		if o.kind == string(store.KindRelay) {
			o.position = max(o.position, end)
		}
		if err := t.renewCursors(ctx, o, n); err != nil {
			return err
		}
	}
	for _, text := range moveSQLs {
		if _, err := t.exec(ctx, text, n); err != nil {
			return err
		}
	}
	return nil
}

func (t txn) renewCursors(ctx context.Context, o oldCursors, n int) error {
	if _, err := t.exec(ctx, dropCursorsSQL, o.relay); err != nil {
		return err
	}
	for p := range n {
		_, err := t.exec(ctx, newCursorSQL, o.relay, p, o.kind, o.position, o.number, o.delivered, o.failed, o.settledAt)
		if err != nil {
			return err
		}
		o.delivered, o.failed = 0, 0
	}
	return nil
}

const (
	// existsSQL says whether a relay has ever registered, and whether it has left anything that must be decided.
	existsSQL = `SELECT EXISTS (SELECT 1 FROM {prefix}cursors WHERE relay = ?1) OR EXISTS (SELECT 1 FROM {prefix}relays WHERE relay = ?1),
		EXISTS (SELECT 1 FROM {prefix}parked WHERE relay = ?1) OR EXISTS (SELECT 1 FROM {prefix}held WHERE relay = ?1)
			OR EXISTS (SELECT 1 FROM {prefix}dead WHERE relay = ?1 AND state = 'open')`
	lockRelaySQL = `SELECT partition_id FROM {prefix}cursors WHERE relay = ? ORDER BY partition_id FOR UPDATE`
)

// LockRelay implements store.HeldWriter.
func (r records) LockRelay(ctx context.Context, name string) (known, left bool, err error) {
	if _, err := stored.Column[int](ctx, r.txn.query, lockRelaySQL, name); err != nil {
		return false, false, err
	}
	if err := r.get(ctx, existsSQL, []any{name}, &known, &left); err != nil {
		return false, false, err
	}
	return known, left, r.checkStopped(ctx, name)
}

// removeRelaySQLs remove what is stored about a relay.
var removeRelaySQLs = []string{
	`DELETE FROM {prefix}held WHERE relay = ?`, `DELETE FROM {prefix}decisions WHERE relay = ?`,
	`DELETE FROM {prefix}cursors WHERE relay = ?`, `DELETE FROM {prefix}relays WHERE relay = ?`,
	`DELETE FROM {prefix}relay_filters WHERE relay = ?`, `DELETE FROM {prefix}unrouted WHERE relay = ?`,
}

// RemoveRelay implements store.HeldWriter.
func (r records) RemoveRelay(ctx context.Context, name string) error {
	_, err := r.asTx().ExecAll(ctx, removeRelaySQLs, name)
	return err
}
