package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// decision is a decision and when it was done.
type decision struct {
	store.Decision
	done time.Time
}

func (db *database) decision(id string) *decision {
	for _, d := range db.decisions {
		if d.ID == id {
			return d
		}
	}
	return nil
}

// openDecisions returns the first 100 open decisions in a relay's partitions.
func (db *database) openDecisions(name string, partitions []int) (out []store.Decision) {
	for _, d := range db.decisions {
		if d.Relay == name && d.State == store.DecisionOpen && slices.Contains(partitions, d.Partition) && len(out) < 100 {
			out = append(out, d.Decision)
		}
	}
	return out
}

// CheckLease implements store.HeldWriter.
func (r records) CheckLease(_ context.Context, name string, lease store.LeaseRef) error {
	if r.db.lease(name, lease) == nil {
		return store.ErrLeaseLost
	}
	return nil
}

// AddDecision implements store.HeldWriter.
func (r records) AddDecision(_ context.Context, d store.Decision) error {
	d.State, d.Outcome, d.Count = store.DecisionOpen, "", 0
	r.db.decisions = append(r.db.decisions, &decision{Decision: d})
	return nil
}

// LockDecision implements store.HeldWriter.
func (r records) LockDecision(ctx context.Context, id string) (store.Decision, error) {
	return r.Decision(ctx, id)
}

// EndDecision implements store.HeldWriter.
func (r records) EndDecision(_ context.Context, d store.Decision) error {
	stored := r.db.decision(d.ID)
	stored.State, stored.Outcome, stored.Count, stored.done = d.State, d.Outcome, d.Count, now()
	return nil
}

// LockHeld implements store.HeldWriter.
func (r records) LockHeld(_ context.Context, name, key string) (store.HeldInfo, error) {
	if err := r.db.untakenKey(name, key); err != nil {
		return store.HeldInfo{}, err
	}
	partition, set, h, err := r.db.held(name, key)
	if err != nil {
		return store.HeldInfo{}, err
	}
	if !h.undecided {
		h = set.withHead(h)
		set.putHeld(h)
	}
	return r.db.heldInfo(name, partition, h), nil
}

// ResumeHeld implements store.HeldWriter.
func (r records) ResumeHeld(_ context.Context, info store.HeldInfo) error {
	_, set, h, err := r.db.held(info.Relay, info.Key)
	if err == nil {
		set.resumeKey(h, now())
	}
	return err
}

// chosen returns the parked messages of a choice, none of which another transaction has taken.
func (r records) chosen(c store.ParkedChoice) (out []*parkedRow, err error) {
	for partition, set := range r.sets(c.Relay) {
		switch {
		case c.All:
			out = slices.AppendSeq(out, maps.Values(set.rows))
		case partition != c.Partition:
		case c.Key != "":
			for _, row := range set.waiting[c.Key] {
				if c.Sequence == 0 || row.msg.Sequence == c.Sequence {
					out = append(out, row)
				}
			}
		default:
			if row := set.rows[c.Sequence]; row != nil && !row.waits {
				out = append(out, row)
			}
		}
	}
	for _, row := range out {
		if err := r.db.untaken(c.Relay, row.msg.Sequence); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(out, func(a, b *parkedRow) int { return cmp.Compare(a.msg.Sequence, b.msg.Sequence) })
	return out, nil
}

// setOf returns the set in which a message is parked.
func (r records) setOf(name string, row *parkedRow) (int, *parkedSet) {
	partition := postrider.PartitionOf(row.msg.Key, row.msg.ID, len(r.db.log))
	return partition, r.db.relays[name].parked[partition]
}

// RetryParked implements store.HeldWriter.
func (r records) RetryParked(_ context.Context, c store.ParkedChoice) (int, error) {
	rows, err := r.chosen(c)
	for _, row := range rows {
		due := *row
		due.dueAt = now()
		_, set := r.setOf(c.Relay, row)
		set.put(&due)
	}
	return len(rows), err
}

// DeadLetterParked implements store.HeldWriter.
func (r records) DeadLetterParked(_ context.Context, c store.ParkedChoice, d store.MovedToDead) (int, error) {
	rows, err := r.chosen(c)
	at := now()
	for _, row := range rows {
		partition, set := r.setOf(c.Relay, row)
		moved := *set.take(row.msg.Sequence)
		moved.history = remember(moved.history, 0, at, d.Entry)
		l := r.db.deadLetter(c.Relay, partition, &moved, d.Reason, d.Cause, moved.attempts, at)
		if d.State != store.DeadOpen {
			l.close(d.State, d.By, d.Resolution, at)
		}
	}
	return len(rows), err
}

// DiscardOpen implements store.HeldWriter.
func (r records) DiscardOpen(_ context.Context, c store.ParkedChoice, by, resolution string) (n int, _ error) {
	for _, l := range r.db.choose(store.DeadQuery{DeadFilter: store.DeadFilter{Relay: c.Relay}}) {
		if c.All || l.Partition == c.Partition && l.Message.Sequence == c.Sequence {
			l.close(store.DeadDiscarded, by, resolution, now())
			n++
		}
	}
	return n, nil
}

// LockRelay implements store.HeldWriter.
func (r records) LockRelay(_ context.Context, name string) (known, left bool, err error) {
	if _, err := r.chosen(store.ParkedChoice{Relay: name, All: true}); err != nil {
		return false, false, err
	}
	if err := r.db.checkStopped(name, now()); err != nil {
		return false, false, err
	}
	open := r.db.choose(store.DeadQuery{DeadFilter: store.DeadFilter{Relay: name}, Limit: 1})
	left = len(open) > 0 || slices.ContainsFunc(r.sets(name), func(p *parkedSet) bool { return len(p.rows)+len(p.held) > 0 })
	return r.db.relays[name] != nil, left, nil
}

// RemoveRelay implements store.HeldWriter.
func (r records) RemoveRelay(_ context.Context, name string) error {
	delete(r.db.relays, name)
	r.db.decisions = slices.DeleteFunc(r.db.decisions, func(d *decision) bool { return d.Relay == name })
	return nil
}
