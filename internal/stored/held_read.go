package stored

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/postrider/postrider/store"
)

// HeldReader reads held keys and parked messages for stores over database/sql. It is what store.HeldReader has except decisions.
type HeldReader struct {
	q   Query
	sql *HeldStatements
}

// HeldStatements are the statements of a HeldReader.
type HeldStatements struct {
	NextRelay string // with held keys or parked messages, after ?
	List      string // a page of held keys: relay, since, key, limit
	Show      string // a held key: relay, key
	Queued    string // of a held key: relay, key, limit
	Parked    string // a page of the parked messages that wait by themselves: relay, due, partition, sequence, limit
	ByID      string // parked messages: relay, ID
	Count     string // of the parked messages that wait by themselves, by relay and reason: relay

	// ReadHeld and ReadParked return what a statement selects.
	ReadHeld   func(ctx context.Context, q Query, text string, args ...any) ([]store.HeldInfo, error)
	ReadParked func(ctx context.Context, q Query, text string, args ...any) ([]store.ParkedInfo, error)
}

// NewHeldReader returns a reader.
func NewHeldReader(q Query, statements *HeldStatements) HeldReader {
	return HeldReader{q: q, sql: statements}
}

// beforeAll is a time before all others.
const beforeAll = int64(-1 << 62)

// ScanHeld reads a row: relay, partition, key, sequence, ID of the blocking message, reason, cause, attempts, since, next attempt or
// NULL, then other columns.
func ScanHeld(scan func(dest ...any) error, others ...any) (h store.HeldInfo, err error) {
	var since int64
	var due sql.Null[int64]
	err = scan(append([]any{&h.Relay, &h.Partition, &h.Key, &h.Sequence, &h.MessageID, &h.Reason, &h.Cause, &h.Attempts, &since, &due},
		others...)...)
	h.Since = Time(since)
	if due.Valid {
		h.NextAttempt = Time(due.V)
	}
	return h, err
}

// NextRelay implements store.HeldReader.
func (r HeldReader) NextRelay(ctx context.Context, after string) (name string, err error) {
	err = r.q.Get(ctx, r.sql.NextRelay, []any{after}, &name)
	return name, err
}

// HeldKeys implements store.HeldReader.
func (r HeldReader) HeldKeys(ctx context.Context, q store.HeldQuery) ([]store.HeldInfo, error) {
	since, key := beforeAll, ""
	if q.After != nil {
		since, key = q.After.Since.UnixMicro(), q.After.Key
	}
	return r.sql.ReadHeld(ctx, r.q, r.sql.List, q.Relay, since, key, q.Limit)
}

// HeldKey implements store.HeldReader.
func (r HeldReader) HeldKey(ctx context.Context, name, key string) (store.HeldInfo, error) {
	found, err := r.sql.ReadHeld(ctx, r.q, r.sql.Show, name, key)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w: key %q of relay %q", store.ErrNotHeld, key, name)
	}
	if err != nil {
		return store.HeldInfo{}, err
	}
	return found[0], nil
}

// Queued implements store.HeldReader.
func (r HeldReader) Queued(ctx context.Context, name, key string, limit int) ([]store.ParkedInfo, error) {
	return r.sql.ReadParked(ctx, r.q, r.sql.Queued, name, key, limit)
}

// Parked implements store.HeldReader.
func (r HeldReader) Parked(ctx context.Context, q store.ParkedQuery) ([]store.ParkedInfo, error) {
	due, partition, seq := beforeAll, -1, int64(0)
	if a := q.After; a != nil {
		due, partition, seq = a.DueAt.UnixMicro(), a.Partition, a.Message.Sequence
	}
	return r.sql.ReadParked(ctx, r.q, r.sql.Parked, q.Relay, due, partition, seq, q.Limit)
}

// ParkedByID implements store.HeldReader.
func (r HeldReader) ParkedByID(ctx context.Context, name, id string) ([]store.ParkedInfo, error) {
	return r.sql.ReadParked(ctx, r.q, r.sql.ByID, name, id)
}

// CountParked implements store.HeldReader.
func (r HeldReader) CountParked(ctx context.Context, name string) (out []store.ParkedCount, err error) {
	err = r.q.Each(ctx, r.sql.Count, []any{name}, func(rows *sql.Rows) error {
		var c store.ParkedCount
		var oldest int64
		err := rows.Scan(&c.Relay, &c.Reason, &c.Count, &oldest)
		c.Oldest = Time(oldest)
		out = append(out, c)
		return err
	})
	return out, err
}
