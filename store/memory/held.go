package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// ListHeld implements store.HeldKeys.
func (s *Store) ListHeld(ctx context.Context, name string) iter.Seq2[store.HeldInfo, error] {
	return func(yield func(store.HeldInfo, error) bool) {
		infos, err := do(ctx, s, "ListHeld", func(db *database) (out []store.HeldInfo, _ error) {
			for n, r := range db.relays {
				if name != "" && name != n {
					continue
				}
				for partition, parked := range r.parked {
					for _, h := range parked.held {
						out = append(out, parked.heldInfo(n, partition, h))
					}
				}
			}
			return out, nil
		})
		if err != nil {
			yield(store.HeldInfo{}, err)
			return
		}
		slices.SortFunc(infos, func(a, b store.HeldInfo) int {
			return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.Relay, b.Relay))
		})
		for _, info := range infos {
			if !yield(info, nil) {
				return
			}
		}
	}
}

func (p *parkedSet) heldInfo(name string, partition int, h *heldRow) store.HeldInfo {
	return store.HeldInfo{
		Relay: name, Partition: partition, Key: h.key, Sequence: h.seq, Reason: h.reason, Cause: h.cause,
		Attempts: h.attempts, Since: h.since, NextAttempt: h.next, Parked: min(len(p.waiting[h.key]), store.CountLimit),
	}
}

// ShowHeld implements store.HeldKeys.
func (s *Store) ShowHeld(ctx context.Context, name, key string, limit int) (store.HeldInfo, []store.ParkedInfo, error) {
	type shown struct {
		info   store.HeldInfo
		parked []store.ParkedInfo
	}
	out, err := do(ctx, s, "ShowHeld", func(db *database) (shown, error) {
		partition, parked, h, err := db.held(name, key)
		if err != nil {
			return shown{}, err
		}
		out := shown{info: parked.heldInfo(name, partition, h)}
		for _, row := range parked.waiting[key] {
			if len(out.parked) == limit {
				break
			}
			out.parked = append(out.parked, row.info())
		}
		return out, nil
	})
	return out.info, out.parked, err
}

// FindParked implements store.HeldKeys.
func (s *Store) FindParked(ctx context.Context, name, id string) ([]store.ParkedInfo, error) {
	return do(ctx, s, "FindParked", func(db *database) (out []store.ParkedInfo, _ error) {
		r := db.relays[name]
		if r == nil {
			return nil, nil
		}
		for _, set := range r.parked {
			for _, row := range set.rows {
				if row.msg.ID == id {
					out = append(out, row.info())
				}
			}
		}
		slices.SortFunc(out, func(a, b store.ParkedInfo) int { return cmp.Compare(a.Message.Sequence, b.Message.Sequence) })
		return out, nil
	})
}

func (r *parkedRow) info() store.ParkedInfo {
	return store.ParkedInfo{
		Message: clone(r.msg), Reason: r.reason, Attempts: r.attempts, ParkedAt: r.parkedAt, DueAt: r.dueAt, History: slices.Clone(r.history),
	}
}

// held finds a held key. Errors: store.ErrNotHeld.
func (db *database) held(name, key string) (int, *parkedSet, *heldRow, error) {
	partition := postrider.PartitionOf(key, "", len(db.log))
	if r := db.relays[name]; r != nil {
		if h := r.parked[partition].held[key]; h != nil {
			return partition, r.parked[partition], h, nil
		}
	}
	return 0, nil, nil, fmt.Errorf("%w: key %q of relay %q", store.ErrNotHeld, key, name)
}

// RecordDecision implements store.HeldKeys.
func (s *Store) RecordDecision(ctx context.Context, d store.Decision) error {
	_, err := do(ctx, s, "RecordDecision", func(db *database) (struct{}, error) {
		if db.decision(d.ID) != nil {
			return struct{}{}, nil
		}
		partition, _, _, err := db.held(d.Relay, d.Key)
		if err != nil {
			return struct{}{}, err
		}
		d.Partition, d.State, d.Outcome, d.Count = partition, store.DecisionOpen, "", 0
		db.decisions = append(db.decisions, &decision{Decision: d})
		return struct{}{}, nil
	})
	if err == nil {
		s.Wake()
	}
	return err
}

// ShowDecision implements store.HeldKeys.
func (s *Store) ShowDecision(ctx context.Context, id string) (store.Decision, error) {
	return do(ctx, s, "ShowDecision", func(db *database) (store.Decision, error) {
		if d := db.decision(id); d != nil {
			return d.Decision, nil
		}
		return store.Decision{}, fmt.Errorf("decision %s: %w", id, store.ErrNoDecision)
	})
}

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

// Decide implements store.Log.
func (s *Store) Decide(ctx context.Context, name string, lease store.LeaseRef, id string) error {
	_, err := do(ctx, s, "Decide", func(db *database) (struct{}, error) {
		d := db.decision(id)
		switch {
		case db.lease(name, lease) == nil:
			return struct{}{}, store.ErrLeaseLost
		case d == nil:
			return struct{}{}, fmt.Errorf("decision %s: %w", id, store.ErrNoDecision)
		case d.State != store.DecisionOpen:
			return struct{}{}, nil
		}
		if err := db.untakenKey(name, d.Key); err != nil && !errors.Is(err, store.ErrNotHeld) {
			return struct{}{}, err
		}
		d.done = now()
		d.State, d.Outcome = store.DecisionApplied, db.decide(&d.Decision, d.done)
		if d.Outcome != "" {
			d.State = store.DecisionRefused
		}
		return struct{}{}, nil
	})
	return err
}

// decide applies a decision, or returns why not.
func (db *database) decide(d *store.Decision, at time.Time) (refused string) {
	partition, parked, h, err := db.held(d.Relay, d.Key)
	if err != nil {
		return store.ErrNotHeld.Error()
	}
	if !h.undecided { // if it is undecided, the blocking message has a dead letter
		parked.findHead(h)
	}
	blocking, letter := parked.rows[h.seq], db.relays[d.Relay].latest[h.seq]
	id := ""
	switch {
	case h.undecided && letter != nil:
		id = letter.Message.ID
	case blocking != nil:
		id = blocking.msg.ID
	}
	if refused := d.Refused(id, h.undecided); refused != "" {
		return refused
	}
	switch d.Verb {
	case store.VerbSkip:
		if !h.undecided && blocking != nil {
			parked.take(h.seq)
			letter = db.deadLetter(d.Relay, partition, blocking, "skipped", h.cause, h.attempts, at)
		}
		if letter != nil && letter.State == store.DeadOpen {
			letter.close(store.DeadDiscarded, d.By, d.Reason, at)
			d.Count = 1
		}
	case store.VerbDead, store.VerbDeadAll:
		for _, row := range slices.Clone(parked.waiting[d.Key]) {
			if d.Verb == store.VerbDead && row.msg.Sequence != h.seq {
				continue
			}
			parked.take(row.msg.Sequence)
			row.history = remember(row.history, 0, at, "moved to the dead letters by "+d.By)
			db.deadLetter(d.Relay, partition, row, d.Reason, h.cause, row.attempts, at)
			d.Count++
		}
	}
	parked.letGo(h, at)
	return ""
}
