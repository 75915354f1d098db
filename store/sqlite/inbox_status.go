package sqlite

import (
	"context"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	consumerNamesSQL = `SELECT relay FROM {prefix}cursors WHERE partition = 0 AND kind = 'consumer'`
	rememberedSQL    = `SELECT count(*) FROM (SELECT 1 FROM {prefix}claims WHERE consumer = ? LIMIT +?)`
	oldestClaimSQL   = `SELECT min(claimed_at) FROM {prefix}claims WHERE consumer = ?`
	allMarksSQL      = `SELECT partition, epoch, position, moved FROM {prefix}watermarks WHERE consumer = ? ORDER BY partition, epoch`
)

// Consumers implements store.StatusReader.
func (s *Store) Consumers(ctx context.Context) (out []store.ConsumerStatus, err error) {
	err = s.read(ctx, "status of consumers", func(t txn) error {
		out, err = stored.ConsumerSQL{
			Names: consumerNamesSQL + ` ORDER BY relay`, Count: rememberedSQL, Oldest: oldestClaimSQL, Marks: allMarksSQL,
		}.Read(ctx, t.query, t.now)
		return err
	})
	return out, err
}
