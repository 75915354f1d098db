package inbox

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// A log that can be divided has one position in the whole and others in its parts. Their numbers alone say which of them count: that in the
// whole says whether the log is read in parts (Divided), and those in the parts say with which number of it they began (From). Whoever
// begins to read parts, or the whole again, moves the position in the whole. A process that has not noticed yet then cannot move it, or a position
// in a part; one that was moved at that moment does not count. Offsets, incarnations and times of different positions are not compared.

// beginning is where a run begins to read.
type beginning struct {
	at      *store.LogPosition // nil: where the log begins
	moved   bool               // at is to be stored before anything is read
	from    int64              // LogPosition.From
	divided *store.LogPosition // the position in the whole, to be stored together with at
}

// load reads under the lease where reading begins.
func (r *logRun[Tx]) load(now postrider.LogPartition) (b beginning, err error) {
	var own, whole *store.LogPosition
	parts := make([]*store.LogPosition, len(now.Parts))
	err = r.inTx(r.ctx, func(ctx context.Context, tx Tx) error {
		stored := func(partition string) (*store.LogPosition, error) {
			return r.src.c.store.Position(ctx, tx, r.src.c.cfg.Name, partition)
		}
		if own, err = stored(now.Name); err == nil && now.Whole != "" {
			whole, err = stored(now.Whole)
		}
		for i, name := range now.Parts {
			if err == nil && own != nil && own.Divided {
				parts[i], err = stored(name)
			}
		}
		return err
	})
	switch {
	case err != nil:
	case now.Whole != "":
		b = inPart(now, own, whole)
	case own != nil && own.Divided:
		b, err = r.inWhole(now, own, parts)
	default:
		b.at = own
	}
	if err != nil {
		return b, fmt.Errorf("read the position in %s: %w", r.part.Name, err)
	}
	return b, nil
}

// inPart returns where a part of a log begins: at its position, or at that in the whole if it has none since that was divided. Without
// one in the whole, its own is of another log, which had a partition of this name.
func inPart(now postrider.LogPartition, own, whole *store.LogPosition) beginning {
	if whole != nil && own != nil && own.Follows(whole) {
		return beginning{at: own, from: own.From}
	}
	b, known := beginning{moved: true}, whole != nil || own != nil
	if whole == nil {
		whole = &store.LogPosition{Partition: now.Whole, Incarnation: now.Incarnation, Offset: now.First - 1, End: now.End}
	}
	if known {
		b.at = takeOver(now, own, whole)
	}
	if !whole.Divided {
		divided := *whole
		divided.Number, divided.Divided, divided.Open = whole.Number+1, true, whole.Moved+whole.Open
		whole, b.divided = &divided, &divided
	}
	b.from = whole.Number
	return b
}

// inWhole returns where the whole of a log that was divided begins: at the lowest position in its parts, or where it was divided if there
// is a part without one. The log may have been replaced since each was stored, so each is compared with the log as it is.
func (r *logRun[Tx]) inWhole(now postrider.LogPartition, own *store.LogPosition, parts []*store.LogPosition) (beginning, error) {
	lowest, to, open := own, int64(0), time.Duration(0)
	for i, p := range parts {
		if p == nil || !p.Follows(own) {
			p = own
		}
		at := *p
		if _, err := locate(r.ctx, r.src.log, &at, now); err != nil {
			return beginning{}, err
		}
		if i == 0 || at.Offset < to {
			lowest, to = p, at.Offset
		}
		open = max(open, p.Moved+p.Open)
	}
	p := takeOver(now, own, lowest)
	p.Open = max(open-p.Moved, 0) // messages beyond it may have been processed for as long as in any part
	return beginning{at: p, moved: true}, nil
}

// takeOver returns the position of another partition that had the messages before, as a position in this one, which may have one of its own.
func takeOver(now postrider.LogPartition, own, other *store.LogPosition) *store.LogPosition {
	p := *other
	p.Partition, p.Divided, p.Number, p.Replaced, p.Missing = now.Name, false, 0, 0, 0
	if own != nil {
		p.Number, p.Replaced, p.Missing = own.Number, own.Replaced, own.Missing
	}
	return &p
}
