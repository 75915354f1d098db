package memory

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/postrider/postrider/store"
)

// positionRow is a consumer's position in a log.
type positionRow struct {
	store.LogPosition
	at time.Time
}

// Position implements store.Positions.
func (s *Store) Position(ctx context.Context, tx *Tx, consumer, partition string) (*store.LogPosition, error) {
	return inTx(ctx, s, "Position", tx, func(db *database) (*store.LogPosition, error) {
		row, ok := db.inbox(consumer).positions[partition]
		if !ok {
			return nil, nil
		}
		return row.shown(), nil
	})
}

// MovePosition implements store.Positions.
func (s *Store) MovePosition(ctx context.Context, tx *Tx, consumer string, p store.LogPosition) error {
	_, err := inTx(ctx, s, "MovePosition", tx, func(db *database) (struct{}, error) {
		l := lock{position, consumer, p.Partition}
		if err := tx.acquire(l); err != nil {
			return struct{}{}, err
		}
		positions := db.inbox(consumer).positions
		before := positions[p.Partition].Number
		if own, ok := tx.written(l); ok {
			before = own.(int64)
		}
		if p.Number != before+1 {
			return struct{}{}, store.ErrPositionMoved
		}
		p.Anchors = slices.Clone(p.Anchors)
		tx.write(l, p.Number, func(_ *database, at time.Time) { positions[p.Partition] = positionRow{p, at} })
		return struct{}{}, nil
	})
	return err
}

// LogPositions implements store.Positions.
func (s *Store) LogPositions(ctx context.Context, consumer string) ([]store.LogPosition, error) {
	return do(ctx, s, "LogPositions", func(db *database) ([]store.LogPosition, error) {
		return db.inbox(consumer).shownPositions(), nil
	})
}

// shownPositions returns all positions, by partition.
func (in *inboxState) shownPositions() (out []store.LogPosition) {
	for _, partition := range slices.Sorted(maps.Keys(in.positions)) {
		row := in.positions[partition]
		out = append(out, *row.shown())
	}
	return out
}

func (r *positionRow) shown() *store.LogPosition {
	p := r.LogPosition
	p.Anchors, p.Moved = slices.Clone(p.Anchors), now().Sub(r.at)
	return &p
}
