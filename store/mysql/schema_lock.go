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

	// holdersSQL lists the transactions in this database that are at least ?1 seconds old. Servers do not all tell which of them has
	// used a table. Prepared ones have no thread.
	holdersSQL = `SELECT t.trx_mysql_thread_id, TIMESTAMPDIFF(SECOND, t.trx_started, NOW()), COALESCE(p.user, ''), COALESCE(p.host, ''),
		COALESCE(p.command, ''), COALESCE(LEFT(t.trx_query, 100), '')
		FROM information_schema.innodb_trx t LEFT JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id
		WHERE t.trx_started <= NOW() - INTERVAL ?1 SECOND AND t.trx_mysql_thread_id <> CONNECTION_ID() AND (p.db = DATABASE() OR p.id IS NULL)
		ORDER BY t.trx_started LIMIT 5`
)

// patiently executes a statement of a migration until it gets its locks. Between two attempts it holds none.
func (t txn) patiently(ctx context.Context, statement string) error {
	attempt := func() error {
		_, err := t.on.ExecContext(ctx, t.s.expand(statement))
		return err
	}
	busy := func(err error) bool { return t.s.Conflicted(err) }
	return stored.DefaultPatience.Try(ctx, attempt, busy, t.s.holders)
}

// holders describes the transactions that may have kept a migration from its locks, the oldest first.
func (s *Store) holders(ctx context.Context) (out []string, err error) {
	wait := int64(stored.DefaultPatience.Lock.Seconds())
	err = s.pooled().each(ctx, holdersSQL, []any{wait}, func(rows *sql.Rows) error {
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
