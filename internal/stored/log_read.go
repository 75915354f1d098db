package stored

import (
	"context"
	"database/sql"

	"github.com/postrider/postrider/store"
)

// LogReader is what store.LogReader has except Logged, for stores over database/sql.
type LogReader struct {
	Query Query
	// EndSQL selects the highest sequence, PositionSQL the highest that a relay has delivered; ParkedSQL counts its parked messages,
	// up to a limit.
	EndSQL, PositionSQL, ParkedSQL string
	// Filters returns the filters in effect, by relay.
	Filters func(ctx context.Context) (map[string][]string, error)
}

// LogEnd implements store.LogReader.
func (r LogReader) LogEnd(ctx context.Context) (int64, error) {
	return value[int64](ctx, r.Query, r.EndSQL)
}

// RelayLog implements store.LogReader.
func (r LogReader) RelayLog(ctx context.Context, relay string) (out store.RelayLog, err error) {
	all, err := r.Filters(ctx)
	if err == nil {
		out.Topics = all[relay]
		out.Position, err = value[int64](ctx, r.Query, r.PositionSQL, relay)
	}
	return out, err
}

// CountAllParked implements store.LogReader.
func (r LogReader) CountAllParked(ctx context.Context, relay string, limit int) (int, error) {
	return value[int](ctx, r.Query, r.ParkedSQL, relay, limit)
}

func value[T any](ctx context.Context, q Query, text string, args ...any) (v T, err error) {
	err = q.Get(ctx, text, args, &v)
	return v, err
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
