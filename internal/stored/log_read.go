package stored

import (
	"context"
	"database/sql"
)

// LogReader is what store.LogReader has except Logged, for stores over database/sql.
type LogReader struct {
	q   Query
	sql *LogStatements
	// filters returns the filters in effect, by relay.
	filters func(ctx context.Context) (map[string][]string, error)
}

// LogStatements are the statements of a LogReader.
type LogStatements struct {
	End      string // the highest sequence
	Position string // the highest sequence that a relay has delivered: relay
	Parked   string // counts parked messages: relay, limit
}

// NewLogReader returns a reader.
func NewLogReader(q Query, statements *LogStatements, filters func(ctx context.Context) (map[string][]string, error)) LogReader {
	return LogReader{q: q, sql: statements, filters: filters}
}

// LogEnd implements store.LogReader.
func (r LogReader) LogEnd(ctx context.Context) (seq int64, err error) {
	err = r.q.Get(ctx, r.sql.End, nil, &seq)
	return seq, err
}

// LogPosition implements store.LogReader.
func (r LogReader) LogPosition(ctx context.Context, relay string) (seq int64, err error) {
	err = r.q.Get(ctx, r.sql.Position, []any{relay}, &seq)
	return seq, err
}

// RelayTopics implements store.LogReader.
func (r LogReader) RelayTopics(ctx context.Context, relay string) ([]string, error) {
	all, err := r.filters(ctx)
	return all[relay], err
}

// CountAllParked implements store.LogReader.
func (r LogReader) CountAllParked(ctx context.Context, relay string, limit int) (n int, err error) {
	err = r.q.Get(ctx, r.sql.Parked, []any{relay, limit}, &n)
	return n, err
}

// Filters returns the topic filters in effect, by relay, that a statement selects.
func Filters(ctx context.Context, q Query, text string, args ...any) (map[string][]string, error) {
	out := make(map[string][]string)
	err := q.Each(ctx, text, args, func(rows *sql.Rows) error {
		var name, text string
		if err := rows.Scan(&name, &text); err != nil {
			return err
		}
		topics, err := ParseTopics(text)
		out[name] = topics
		return err
	})
	return out, err
}
