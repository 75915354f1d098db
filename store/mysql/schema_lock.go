package mysqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/plain"
	"github.com/postrider/postrider/internal/stored"
)

const (
	// limitLocksSQL limits how long a statement waits for the locks of tables, a year by default, and of rows, in seconds: that of
	// stored.DefaultPatience.
	limitLocksSQL = `SET SESSION lock_wait_timeout = 3, innodb_lock_wait_timeout = 3`
	// The session of another tool goes on with its own limits.
	keepLimitsSQL    = `SET @postrider_lock_wait = @@SESSION.lock_wait_timeout, @postrider_row_wait = @@SESSION.innodb_lock_wait_timeout`
	restoreLimitsSQL = `SET SESSION lock_wait_timeout = CAST(COALESCE(@postrider_lock_wait, @@SESSION.lock_wait_timeout) AS UNSIGNED),
	innodb_lock_wait_timeout = CAST(COALESCE(@postrider_row_wait, @@SESSION.innodb_lock_wait_timeout) AS UNSIGNED)`

	// The threads that have the lock of a table whose name is in the script ?1: the first on MySQL, the second on MariaDB with the plugin
	// metadata_lock_info. Other servers have no row, or an error.
	lockedSQL = `SELECT DISTINCT t.processlist_id FROM performance_schema.metadata_locks m
		JOIN performance_schema.threads t ON t.thread_id = m.owner_thread_id WHERE m.object_type = 'TABLE' AND m.lock_status = 'GRANTED'
			AND m.object_schema = DATABASE() AND INSTR(?1, m.object_name) > 0 AND t.processlist_id <> CONNECTION_ID()`
	lockInfoSQL = `SELECT DISTINCT thread_id FROM information_schema.metadata_lock_info
		WHERE table_schema = DATABASE() AND INSTR(?1, table_name) > 0 AND thread_id <> CONNECTION_ID()`

	holderColumns = ` COALESCE(p.user, ''), COALESCE(p.host, ''), COALESCE(p.command, ''), COALESCE(LEFT(COALESCE(t.trx_query, p.info), 100), '')`
	// holdersSQL describes threads.
	holdersSQL = `SELECT p.id, COALESCE(TIMESTAMPDIFF(SECOND, t.trx_started, NOW()), p.time),` + holderColumns + `
		FROM information_schema.processlist p LEFT JOIN information_schema.innodb_trx t ON t.trx_mysql_thread_id = p.id
		WHERE p.id IN ? ORDER BY 2 DESC LIMIT 5`
	// possibleSQL describes the transactions in this database that are at least ?1 seconds old. Prepared ones have no thread.
	possibleSQL = `SELECT t.trx_mysql_thread_id, TIMESTAMPDIFF(SECOND, t.trx_started, NOW()),` + holderColumns + `
		FROM information_schema.innodb_trx t LEFT JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id
		WHERE t.trx_started <= NOW() - INTERVAL ?1 SECOND AND t.trx_mysql_thread_id <> CONNECTION_ID() AND (p.db = DATABASE() OR p.id IS NULL)
		ORDER BY t.trx_started LIMIT 5`
)

// patiently executes a statement of a script until it gets its locks. Between two attempts it holds none. The script names the tables.
func (t txn) patiently(ctx context.Context, statement, script string) error {
	attempt := func() error {
		_, err := t.on.ExecContext(ctx, t.s.expand(statement))
		return err
	}
	busy := func(err error) bool { return t.s.Conflicted(err) }
	holders := func(ctx context.Context) ([]string, error) { return t.s.holders(ctx, t.s.expand(script)) }
	return stored.DefaultPatience.Try(ctx, stored.Locking{Attempt: attempt, Busy: busy, Holders: holders, Logger: t.s.cfg.Logger})
}

// holders describes the transactions that kept a script from its locks, the oldest first. If the server does not tell, they are those
// that may have done so.
func (s *Store) holders(ctx context.Context, script string) ([]string, error) {
	for _, text := range []string{lockedSQL, lockInfoSQL} {
		if threads, err := stored.Column[int64](ctx, s.pooled().query, text, script); err == nil && len(threads) > 0 {
			return s.describe(ctx, holdersSQL, threads)
		}
	}
	possible, err := s.describe(ctx, possibleSQL, int64(stored.DefaultPatience.Lock.Seconds()))
	if len(possible) > 0 {
		possible[0] = "the server does not tell who holds them; open transactions, which may: " + possible[0]
	}
	return possible, err
}

func (s *Store) describe(ctx context.Context, text string, arg any) (out []string, err error) {
	err = s.pooled().each(ctx, text, []any{arg}, func(rows *sql.Rows) error {
		var thread, age int64
		var user, host, command, query string
		if err := rows.Scan(&thread, &age, &user, &host, &command, &query); err != nil {
			return err
		}
		old := plain.Duration(time.Duration(age)*time.Second, " ")
		if thread == 0 {
			out = append(out, "a prepared transaction is "+old+" old; to see its name and end it: XA RECOVER, then XA ROLLBACK")
			return nil
		}
		out = append(out, fmt.Sprintf("the transaction of thread %d (user %s, from %s, %s) is %s old; its statement is %q; to end it: KILL %[1]d", thread,
			cmp.Or(user, "?"), cmp.Or(host, "?"), cmp.Or(command, "?"), old, query))
		return nil
	})
	return out, s.cfg.explain("look at other sessions", err)
}

// discard closes a connection instead of returning it to its pool with the settings of its session.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = conn.Close()
}
