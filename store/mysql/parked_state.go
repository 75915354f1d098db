package mysqlstore

import (
	"context"
	"slices"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	heldKeysSQL        = `SELECT message_key FROM {prefix}held WHERE relay = ? AND partition_id = ? ORDER BY message_key LIMIT ?`
	parkedSequencesSQL = `SELECT seq FROM {prefix}parked WHERE relay = ?1 AND partition_id = ?2 AND seq > ?3
		UNION SELECT seq FROM {prefix}dead WHERE relay = ?1 AND partition_id = ?2 AND seq > ?3 ORDER BY seq`
)

// parkedState returns what a relay has parked or dead-lettered in a partition, after a cursor; the sequences only of a relay.
func (t txn) parkedState(ctx context.Context, name string, kind store.Kind, partition int, after store.Cursor, maxHeld int) (out store.ParkedState, err error) {
	out.Keys, err = stored.Column[string](ctx, t.query, heldKeysSQL, name, partition, stored.HeldLimit(maxHeld))
	stored.CutHeld(&out, maxHeld)
	if err != nil || kind == store.KindConsumer {
		return out, err
	}
	position := after.Position
	missing, err := parseGaps(after.Snapshot)
	if err != nil {
		return out, err
	}
	from := min(position, missing.solid(position))
	out.Sequences, err = stored.Column[int64](ctx, t.query, parkedSequencesSQL, name, partition, from)
	out.Sequences = slices.DeleteFunc(out.Sequences, func(seq int64) bool { return seq <= position && !missing.contains(seq) })
	return out, err
}
