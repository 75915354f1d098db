package inbox

import (
	"fmt"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// load reads the stored position under the lease. In a log that was divided otherwise before, it may be that of earlier partitions.
func (r *logRun[Tx]) load(now postrider.LogPartition) (p *store.LogPosition, err error) {
	err = r.inTx(r.ctx, func(tx Tx) error {
		if p, err = r.stored(tx, now.Name, now.Incarnation); err != nil {
			return err
		}
		before, err := r.lowest(tx, now)
		p = further(now.Name, p, before)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the position in %s: %w", r.part.Name, err)
	}
	return p, nil
}

// stored returns the position in a partition, nil for none. A consumer that had a group and a watermark before begins with that.
func (r *logRun[Tx]) stored(tx Tx, partition, incarnation string) (*store.LogPosition, error) {
	name := r.src.c.cfg.Name
	p, err := r.src.c.store.Position(r.ctx, tx, name, partition)
	if err != nil || p != nil {
		return p, err
	}
	w, err := r.src.c.store.Watermark(r.ctx, tx, name, postrider.Position{Partition: partition, Incarnation: incarnation})
	if err != nil || !w.Known {
		return nil, err
	}
	p = &store.LogPosition{Partition: partition, Incarnation: incarnation, Offset: w.Offset}
	p.Anchors = addAnchor(nil, postrider.Position{Offset: w.Offset, Mark: w.Mark})
	return p, nil
}

// lowest returns the lowest position in the partitions that had the messages before, nil unless there is one in each. Messages beyond it
// may have been processed for as long as in any of them.
func (r *logRun[Tx]) lowest(tx Tx, now postrider.LogPartition) (p *store.LogPosition, err error) {
	for _, name := range now.Before {
		other, err := r.stored(tx, name, now.Incarnation)
		switch {
		case err != nil || other == nil || p != nil && p.Incarnation != other.Incarnation:
			return nil, err
		case p == nil:
			p = other
			continue
		}
		open := max(p.Moved+p.Open, other.Moved+other.Open)
		if other.Offset < p.Offset {
			p = other
		}
		p.Open = open - p.Moved
	}
	return p, nil
}

// further returns the further one of two positions in the same messages, as a position in partition: everything up to either of them is
// processed.
func further(partition string, own, before *store.LogPosition) *store.LogPosition {
	if before == nil || own != nil && (own.Incarnation != before.Incarnation || own.Offset >= before.Offset) {
		return own
	}
	p := store.LogPosition{
		Partition: partition, Incarnation: before.Incarnation, Offset: before.Offset, Anchors: before.Anchors,
		End: before.End, Moved: before.Moved, Open: before.Open,
	}
	if own != nil {
		p.Number, p.Replaced, p.Missing, p.MissingFrom, p.MissingTo = own.Number, own.Replaced, own.Missing, own.MissingFrom, own.MissingTo
		p.Open = max(p.Moved+p.Open, own.Moved+own.Open) - p.Moved
	}
	return &p
}
