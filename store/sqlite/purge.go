package sqlite

import (
	"context"
	"database/sql"

	"github.com/postrider/postrider/store"
)

const (
	// resolvedSQL: ?1 relay or '', ?2 before, after ?3.
	resolvedSQL      = `state <> 'open' AND resolved_at < ?2 AND ?1 IN ('', relay) AND number > ?3`
	countResolvedSQL = `SELECT count(*) FROM {prefix}dead WHERE ` + resolvedSQL
	// chooseResolvedSQL selects dead letters, ?4 at most, and says of each whether its message may be read from the log again.
	chooseResolvedSQL = `SELECT number, EXISTS (SELECT 1 FROM {prefix}log l LEFT JOIN {prefix}cursors c ON c.relay = d.relay AND c.partition = l.partition
			WHERE l.seq = d.seq AND l.partition = d.partition AND l.seq > coalesce(c.position, 0) AND coalesce(c.kind, 'relay') = 'relay')
		FROM {prefix}dead d WHERE ` + resolvedSQL + ` ORDER BY number LIMIT +?4`
	removeDeadSQL  = `DELETE FROM {prefix}dead WHERE number IN (SELECT value FROM json_each(?))`
	removeEditsSQL = `DELETE FROM {prefix}dead_edits WHERE number IN (SELECT value FROM json_each(?))`
)

// CountResolved implements store.Reader.
func (r records) CountResolved(ctx context.Context, q store.ResolvedQuery) (n int64, err error) {
	err = r.get(ctx, countResolvedSQL, []any{q.Relay, micro(q.Before), q.After}, &n)
	return n, err
}

// RemoveResolved implements store.Writer.
func (r records) RemoveResolved(ctx context.Context, q store.ResolvedQuery) (removed int, last int64, err error) {
	var numbers []int64
	err = r.each(ctx, chooseResolvedSQL, []any{q.Relay, micro(q.Before), q.After, q.Limit}, func(rows *sql.Rows) error {
		var unread bool
		err := rows.Scan(&last, &unread)
		if !unread {
			numbers = append(numbers, last)
		}
		return err
	})
	for _, text := range []string{removeEditsSQL, removeDeadSQL} {
		if err == nil && len(numbers) > 0 {
			_, err = r.exec(ctx, text, list(numbers))
		}
	}
	return len(numbers), last, err
}
