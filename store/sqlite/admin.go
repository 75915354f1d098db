package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

var _ store.Administrator = (*Store)(nil)

const (
	livingSQL = `SELECT relay, owner, host FROM {prefix}relays WHERE (?1 = '' OR relay = ?1) AND alive_until > ?2
		ORDER BY relay, started_at LIMIT 1`
	// A partition in which a relay has not delivered or parked everything.
	anyUndeliveredSQL = `SELECT c.relay, c.partition FROM {prefix}cursors c WHERE c.kind = 'relay' AND EXISTS (
			SELECT 1 FROM {prefix}log l WHERE l.partition = c.partition AND l.seq > c.position
			AND NOT EXISTS (SELECT 1 FROM {prefix}parked p WHERE p.relay = c.relay AND p.seq = l.seq))
		ORDER BY c.relay, c.partition LIMIT 1`

	setPartitionsSQL = `UPDATE {prefix}meta SET value = ? WHERE name = 'partitions'`
	// ?1 partitions, as JSON, ?2 the incarnation. Every cursor goes to the end of the log. Settlement numbers continue from the
	// highest that the relay has had. Partition 0 takes over the counters.
	renewCursorsSQL = `INSERT INTO {prefix}cursors (relay, kind, partition, position, number, delivered, failed, settled_at, incarnation)
		SELECT relay, kind, p.value, iif(kind = 'relay',
				max(r.position, (SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = '{prefix}log')), 0),
			r.number, iif(p.value = 0, r.delivered, 0), iif(p.value = 0, r.failed, 0), r.settled_at, ?2
		FROM (SELECT relay, max(kind) AS kind, max(position) AS position, max(number) AS number, sum(delivered) AS delivered, sum(failed) AS failed,
			max(settled_at) AS settled_at FROM {prefix}cursors GROUP BY relay) r, json_each(?1) p WHERE true
		ON CONFLICT (relay, partition) DO UPDATE SET position = excluded.position, owner = '', token = '',
			incarnation = excluded.incarnation, number = excluded.number, content = x'', delivered = excluded.delivered, failed = excluded.failed, settled_at = excluded.settled_at`
	dropCursorsSQL = `DELETE FROM {prefix}cursors WHERE partition >= ?`

	// SQLite has no MD5, so keys are read and partitions are written in pages. %s is a table.
	rowsSQL    = `SELECT rowid, partition, key, %[2]s FROM %[1]s WHERE rowid > ? ORDER BY rowid LIMIT 1000`
	moveRowSQL = `UPDATE %s SET partition = m.value ->> 1 FROM json_each(?) m WHERE %[1]s.rowid = m.value ->> 0`
	keysSQL    = `SELECT DISTINCT key FROM %s`
	moveKeySQL = `UPDATE %s SET partition = ? WHERE key = ?`
)

// Repartition implements store.Administrator. The file is locked against other writers while it moves the messages that are still
// in the log. Errors: store.ErrAlive, store.ErrUndelivered, ErrBusy and those of the file.
func (s *Store) Repartition(ctx context.Context, n int) error {
	if n < 1 || n > store.MaxPartitions {
		return fmt.Errorf("repartition: %d partitions: want 1 to %d", n, store.MaxPartitions)
	}
	err := s.write(ctx, "repartition", durable, func(t txn) error {
		if err := t.checkStopped(ctx, ""); err != nil {
			return err
		}
		var name string
		var partition int
		err := t.get(ctx, anyUndeliveredSQL, nil, &name, &partition)
		if err == nil {
			return stored.Undelivered(name, partition)
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		return t.repartition(ctx, n)
	})
	if err != nil {
		return err
	}
	s.partitions.Store(int64(n))
	s.publishing.Store(0)
	s.Wake()
	return nil
}

// checkStopped fails if a process of a relay ("" for any) is alive.
func (t txn) checkStopped(ctx context.Context, name string) error {
	return stored.CheckStopped(ctx, t.query, livingSQL, name, t.now)
}

func (t txn) repartition(ctx context.Context, n int) error {
	for _, st := range []struct {
		text string
		args []any
	}{{setPartitionsSQL, []any{n}}, {renewCursorsSQL, []any{list(numbers(n)), t.s.incarnation.text}}, {dropCursorsSQL, []any{n}}} {
		if _, err := t.exec(ctx, st.text, st.args...); err != nil {
			return err
		}
	}
	for table, id := range map[string]string{"log": "id", "parked": "id", "dead": "id", "decisions": "message_id"} {
		if err := t.moveRows(ctx, "{prefix}"+table, id, n); err != nil {
			return err
		}
	}
	return t.moveKeys(ctx, "{prefix}held", n)
}

// moveKeys gives every key of a table its partition among n.
func (t txn) moveKeys(ctx context.Context, table string, n int) error {
	keys, err := stored.Column[string](ctx, t.query, fmt.Sprintf(keysSQL, table))
	for _, key := range keys {
		if err == nil {
			_, err = t.exec(ctx, fmt.Sprintf(moveKeySQL, table), postrider.PartitionOf(key, "", n), key)
		}
	}
	return err
}

// moveRows gives every row of a table its partition among n; idColumn has the ID of its message.
func (t txn) moveRows(ctx context.Context, table, idColumn string, n int) error {
	for last, more := int64(-1), true; more; {
		more = false
		var moves [][2]int64
		err := t.each(ctx, fmt.Sprintf(rowsSQL, table, idColumn), []any{last}, func(rows *sql.Rows) error {
			var partition int
			var key, id string
			err := rows.Scan(&last, &partition, &key, &id)
			if p := postrider.PartitionOf(key, id, n); p != partition {
				moves = append(moves, [2]int64{last, int64(p)})
			}
			more = true
			return err
		})
		if err == nil && len(moves) > 0 {
			_, err = t.exec(ctx, fmt.Sprintf(moveRowSQL, table), list(moves))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// partitionOf is postrider.PartitionOf with the outbox's current number of partitions.
func (t txn) partitionOf(ctx context.Context, key, id string) (int, error) {
	var n int
	if err := t.get(ctx, partitionsSQL, nil, &n); err != nil {
		return 0, err
	}
	return postrider.PartitionOf(key, id, n), nil
}

// checkPartitions fails if the number of partitions is not the one that this Store was opened with.
func (t txn) checkPartitions(ctx context.Context) error {
	var n int
	if err := t.get(ctx, partitionsSQL, nil, &n); err != nil {
		return err
	}
	if n != t.s.number() {
		return fmt.Errorf("%w: from %d to %d", store.ErrRepartitioned, t.s.number(), n)
	}
	return nil
}

// existsSQL says whether a relay has ever registered, and whether it has left anything that must be decided.
const existsSQL = `SELECT EXISTS (SELECT 1 FROM {prefix}cursors WHERE relay = ?1) OR EXISTS (SELECT 1 FROM {prefix}relays WHERE relay = ?1),
	EXISTS (SELECT 1 FROM {prefix}parked WHERE relay = ?1) OR EXISTS (SELECT 1 FROM {prefix}held WHERE relay = ?1)
		OR EXISTS (SELECT 1 FROM {prefix}dead WHERE relay = ?1 AND state = 'open')`

// LockRelay implements store.HeldWriter: nobody else writes until the transaction ends.
func (r records) LockRelay(ctx context.Context, name string) (known, left bool, err error) {
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
