package mysqlstore

import (
	"context"

	"github.com/postrider/postrider/internal/stored"
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
		out, err = stored.ConsumerSQL{
			Names: consumerNamesSQL, Count: rememberedSQL, Oldest: oldestClaimSQL, Marks: allMarksSQL,
		}.Read(ctx, t.query, t.now)
		return err
	})
	return out, err
}
