package stored

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/store"
)

// KindPosition is the kind of the documents that hold the positions of consumers in the logs of brokers.
const KindPosition = "position"

// PositionsOf begins the IDs of all positions of a consumer.
func PositionsOf(consumer string) string { return fmt.Sprintf("%d:%s:", len(consumer), consumer) }

// PositionID is the ID of a consumer's position in a partition.
func PositionID(consumer, partition string) string { return PositionsOf(consumer) + partition }

// PositionBody is the body of a position.
func PositionBody(p store.LogPosition) ([]byte, error) {
	body, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("position in %s: %w", p.Partition, err)
	}
	return body, nil
}

// Position reads a position: its ID, revision and body, and how long ago it was stored.
func Position(consumer, id string, rev int64, body []byte, ago time.Duration) (store.LogPosition, error) {
	var p store.LogPosition
	if err := json.Unmarshal(body, &p); err != nil {
		return p, fmt.Errorf("read the position %s: %w", id, err)
	}
	p.Partition, p.Number, p.Moved = strings.TrimPrefix(id, PositionsOf(consumer)), rev, max(ago, 0)
	return p, nil
}

// FirstPosition returns the position that a statement selects, nil if there is none; see Positions.
func FirstPosition(ctx context.Context, q Query, consumer, text string, args ...any) (*store.LogPosition, error) {
	found, err := Positions(ctx, q, consumer, text, args...)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// MovePosition stores a position. first inserts it: kind, ID, body; next replaces the one with the number before: kind, ID, body, number.
// between are parameters before the body.
func (t Tx) MovePosition(ctx context.Context, first, next, consumer string, p store.LogPosition, between ...any) error {
	body, err := PositionBody(p)
	if err != nil {
		return err
	}
	text, args := first, append([]any{KindPosition, PositionID(consumer, p.Partition)}, append(between, body)...)
	if p.Number > 1 {
		text, args = next, append(args, p.Number-1)
	}
	n, err := t.Exec(ctx, text, args...)
	if err == nil && n == 0 {
		err = store.ErrPositionMoved
	}
	return err
}
