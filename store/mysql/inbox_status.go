package mysqlstore

import (
	"context"
	"database/sql"

	"github.com/postrider/postrider/store"
)

const (
	consumerNamesSQL = `SELECT DISTINCT relay FROM {prefix}cursors WHERE kind = 'consumer' ORDER BY relay`
	rememberedSQL    = `SELECT COUNT(*) FROM (SELECT 1 FROM {prefix}claims WHERE consumer = ? LIMIT ?) c`
	oldestClaimSQL   = `SELECT MIN(claimed_at) FROM {prefix}claims WHERE consumer = ?`
	allMarksSQL      = `SELECT partition_id, epoch, position, moved FROM {prefix}watermarks WHERE consumer = ? AND position IS NOT NULL
		ORDER BY partition_id, epoch`
)

// Consumers implements store.StatusReader.
func (s *Store) Consumers(ctx context.Context) (out []store.ConsumerStatus, err error) {
	err = s.read(ctx, "status of consumers", func(t txn) error {
		names, err := column[string](ctx, t, consumerNamesSQL)
		if err != nil {
			return err
		}
		out = make([]store.ConsumerStatus, len(names))
		for i, name := range names {
			if out[i], err = t.consumer(ctx, name); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

func (t txn) consumer(ctx context.Context, name string) (store.ConsumerStatus, error) {
	st := store.ConsumerStatus{Name: name}
	var n int64
	if err := t.get(ctx, rememberedSQL, []any{name, store.CountLimit + 1}, &n); err != nil {
		return st, err
	}
	st.Remembered = count(n)
	var oldest sql.Null[int64]
	if err := t.get(ctx, oldestClaimSQL, []any{name}, &oldest); err != nil {
		return st, err
	}
	st.Oldest = age(oldest, t.now)
	err := t.each(ctx, allMarksSQL, []any{name}, func(rows *sql.Rows) error {
		var w store.WatermarkStatus
		var moved sql.Null[int64]
		err := rows.Scan(&w.Partition, &w.Epoch, &w.Offset, &moved)
		w.Moved = age(moved, t.now)
		st.Watermarks = append(st.Watermarks, w)
		return err
	})
	if err == nil {
		st.Positions, err = t.positions(ctx, name)
	}
	return st, err
}
