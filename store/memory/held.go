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
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/relay"
)

// ListHeld implements relay.HeldStore.
func (s *Store) ListHeld(ctx context.Context, name string) iter.Seq2[relay.HeldInfo, error] {
	return func(yield func(relay.HeldInfo, error) bool) {
		infos, err := do(ctx, s, "ListHeld", func(db *database) (out []relay.HeldInfo, _ error) {
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
			yield(relay.HeldInfo{}, err)
			return
		}
		slices.SortFunc(infos, func(a, b relay.HeldInfo) int {
			return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.Relay, b.Relay))
		})
		for _, info := range infos {
			if !yield(info, nil) {
				return
			}
		}
	}
}

func (p *parkedSet) heldInfo(name string, partition int, h *heldRow) relay.HeldInfo {
	return relay.HeldInfo{
		Relay: name, Partition: partition, Key: h.key, Sequence: h.seq, Reason: h.reason, Cause: h.cause,
		Attempts: h.attempts, Since: h.since, NextAttempt: h.next, Parked: min(len(p.waiting[h.key]), relay.CountLimit),
	}
}

// ShowHeld implements relay.HeldStore.
func (s *Store) ShowHeld(ctx context.Context, name, key string, limit int) (relay.HeldInfo, []relay.ParkedInfo, error) {
	type shown struct {
		info   relay.HeldInfo
		parked []relay.ParkedInfo
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

// FindParked implements relay.HeldStore.
func (s *Store) FindParked(ctx context.Context, name, id string) ([]relay.ParkedInfo, error) {
	return do(ctx, s, "FindParked", func(db *database) (out []relay.ParkedInfo, _ error) {
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
		slices.SortFunc(out, func(a, b relay.ParkedInfo) int { return cmp.Compare(a.Message.Sequence, b.Message.Sequence) })
		return out, nil
	})
}

func (r *parkedRow) info() relay.ParkedInfo {
	return relay.ParkedInfo{
		Message: clone(r.msg), Reason: r.reason, Attempts: r.attempts, ParkedAt: r.parkedAt, DueAt: r.dueAt, History: slices.Clone(r.history),
	}
}

// held finds a held key. Errors: relay.ErrNotHeld.
func (db *database) held(name, key string) (int, *parkedSet, *heldRow, error) {
	partition := postrider.PartitionOf(key, "", len(db.log))
	if r := db.relays[name]; r != nil {
		if h := r.parked[partition].held[key]; h != nil {
			return partition, r.parked[partition], h, nil
		}
	}
	return 0, nil, nil, fmt.Errorf("%w: key %q of relay %q", relay.ErrNotHeld, key, name)
}

// RecordDecision implements relay.HeldStore.
func (s *Store) RecordDecision(ctx context.Context, d relay.Decision) error {
	_, err := do(ctx, s, "RecordDecision", func(db *database) (struct{}, error) {
		if db.decision(d.ID) != nil {
			return struct{}{}, nil
		}
		partition, _, _, err := db.held(d.Relay, d.Key)
		if err != nil {
			return struct{}{}, err
		}
		d.Partition, d.State, d.Outcome, d.Count = partition, relay.DecisionOpen, "", 0
		db.decisions = append(db.decisions, &decision{Decision: d})
		return struct{}{}, nil
	})
	if err == nil {
		s.Wake()
	}
	return err
}

// ShowDecision implements relay.HeldStore.
func (s *Store) ShowDecision(ctx context.Context, id string) (relay.Decision, error) {
	return do(ctx, s, "ShowDecision", func(db *database) (relay.Decision, error) {
		if d := db.decision(id); d != nil {
			return d.Decision, nil
		}
		return relay.Decision{}, fmt.Errorf("decision %s: %w", id, relay.ErrNoDecision)
	})
}

// decision is a decision and when it was done.
type decision struct {
	relay.Decision
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
func (db *database) openDecisions(name string, partitions []int) (out []relay.Decision) {
	for _, d := range db.decisions {
		if d.Relay == name && d.State == relay.DecisionOpen && slices.Contains(partitions, d.Partition) && len(out) < 100 {
			out = append(out, d.Decision)
		}
	}
	return out
}

// Decide implements relay.LogStore.
func (s *Store) Decide(ctx context.Context, name string, lease relay.LeaseRef, id string) error {
	_, err := do(ctx, s, "Decide", func(db *database) (struct{}, error) {
		d := db.decision(id)
		switch {
		case db.lease(name, lease) == nil:
			return struct{}{}, relay.ErrLeaseLost
		case d == nil:
			return struct{}{}, fmt.Errorf("decision %s: %w", id, relay.ErrNoDecision)
		case d.State != relay.DecisionOpen:
			return struct{}{}, nil
		}
		if err := db.untakenKey(name, d.Key); err != nil && !errors.Is(err, relay.ErrNotHeld) {
			return struct{}{}, err
		}
		d.done = now()
		d.State, d.Outcome = relay.DecisionApplied, db.decide(&d.Decision, d.done)
		if d.Outcome != "" {
			d.State = relay.DecisionRefused
		}
		return struct{}{}, nil
	})
	return err
}

// decide applies a decision, or returns why not.
func (db *database) decide(d *relay.Decision, at time.Time) (refused string) {
	partition, parked, h, err := db.held(d.Relay, d.Key)
	if err != nil {
		return relay.ErrNotHeld.Error()
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
	case relay.VerbSkip:
		if !h.undecided && blocking != nil {
			parked.take(h.seq)
			letter = db.deadLetter(d.Relay, partition, blocking, "skipped", h.cause, h.attempts, at)
		}
		if letter != nil && letter.State == deadletter.Open {
			letter.close(deadletter.Discarded, d.By, d.Reason, at)
			d.Count = 1
		}
	case relay.VerbDead, relay.VerbDeadAll:
		for _, row := range slices.Clone(parked.waiting[d.Key]) {
			if d.Verb == relay.VerbDead && row.msg.Sequence != h.seq {
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
