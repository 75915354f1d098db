package mysqlstore

import (
	"context"
	"database/sql"

	"github.com/postrider/postrider/store"
)

const (
	// resolvedSQL: ?1 relay or '', ?2 before, after ?3.
	resolvedSQL      = `d.state <> 'open' AND d.resolved_at < ?2 AND (?1 = '' OR d.relay = ?1) AND d.number > ?3`
	countResolvedSQL = `SELECT COUNT(*) FROM {prefix}dead d WHERE ` + resolvedSQL
	// chooseResolvedSQL selects dead letters, ?4 at most. If the log still has the message of a relay's, the place of the
	// relay's cursor says whether it may be read again; without a cursor it may.
	chooseResolvedSQL = `SELECT d.number, l.seq IS NOT NULL AND COALESCE(c.kind, 'relay') = 'relay', d.seq, COALESCE(c.position, 0), COALESCE(c.gaps, '')
		FROM {prefix}dead d LEFT JOIN {prefix}log l ON l.seq = d.seq AND l.partition_id = d.partition_id
		LEFT JOIN {prefix}cursors c ON c.relay = d.relay AND c.partition_id = d.partition_id
		WHERE ` + resolvedSQL + ` ORDER BY d.number LIMIT ?4`
	removeDeadSQL  = `DELETE FROM {prefix}dead WHERE number IN ? AND state <> 'open'`
	removeEditsSQL = `DELETE FROM {prefix}edits WHERE number IN ?`
)

// CountResolved implements store.Reader.
func (r records) CountResolved(ctx context.Context, q store.ResolvedQuery) (n int64, err error) {
	err = r.get(ctx, countResolvedSQL, []any{q.Relay, q.Before.UnixMicro(), q.After}, &n)
	return n, err
}

// RemoveResolved implements store.Writer.
func (r records) RemoveResolved(ctx context.Context, q store.ResolvedQuery) (removed int, last int64, err error) {
	var numbers []int64
	err = r.each(ctx, chooseResolvedSQL, []any{q.Relay, q.Before.UnixMicro(), q.After, q.Limit}, func(rows *sql.Rows) error {
		var logged bool
		var seq, position int64
		var text string
		if err := rows.Scan(&last, &logged, &seq, &position, &text); err != nil {
			return err
		}
		missing, err := parseGaps(text)
		if !logged || seq <= position && !missing.contains(seq) {
			numbers = append(numbers, last)
		}
		return err
	})
	for _, text := range []string{removeEditsSQL, removeDeadSQL} {
		if err == nil && len(numbers) > 0 {
			_, err = r.exec(ctx, text, numbers)
		}
	}
	return len(numbers), last, err
}
