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
	// chooseResolvedSQL selects dead letters, ?4 at most, and says of each whether it stays: the log has its message, or a redrive on record
	// has sent the message back, which counts by its dead letters. The sequences of a consumer are not those of the log.
	chooseResolvedSQL = `SELECT number, EXISTS (SELECT 1 FROM {prefix}log l WHERE l.seq = d.seq AND l.partition = d.partition)
			AND NOT ` + isConsumerSQL + ` OR EXISTS (SELECT 1 FROM {prefix}dead e JOIN {prefix}redrives r ON r.id = e.redrive
				WHERE e.relay = d.relay AND e.partition = d.partition AND e.seq = d.seq)
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
		var stays bool
		err := rows.Scan(&last, &stays)
		if !stays {
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
