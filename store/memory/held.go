package memory

import (
	"cmp"
	"context"
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
			out.parked = append(out.parked, relay.ParkedInfo{
				Message: clone(row.msg), Reason: row.reason, Attempts: row.attempts,
				ParkedAt: row.parkedAt, DueAt: row.dueAt, History: slices.Clone(row.history),
			})
		}
		return out, nil
	})
	return out.info, out.parked, err
}

// held finds a held key.
func (db *database) held(name, key string) (int, *parkedSet, *heldRow, error) {
	partition := postrider.PartitionOf(key, "", len(db.log))
	if r := db.relays[name]; r != nil {
		if h := r.parked[partition].held[key]; h != nil {
			return partition, r.parked[partition], h, nil
		}
	}
	return 0, nil, nil, fmt.Errorf("%w: key %q of relay %q", relay.ErrNotHeld, key, name)
}

// RetryHeld implements relay.HeldStore.
func (s *Store) RetryHeld(ctx context.Context, name, key string) error {
	_, err := s.decide(ctx, "RetryHeld", name, key, func(_ *database, _ int, parked *parkedSet, h *heldRow, at time.Time) int {
		parked.letGo(h, at)
		return 0
	})
	return err
}

// decide applies an operator's decision about a held key. The key stays held, due at once, for the process that holds its
// partition to go on with or release: only that one knows what it has in hand.
func (s *Store) decide(ctx context.Context, op, name, key string,
	apply func(db *database, partition int, parked *parkedSet, h *heldRow, at time.Time) int) (int, error) {
	n, err := do(ctx, s, op, func(db *database) (int, error) {
		if err := db.untakenKey(name, key); err != nil {
			return 0, err
		}
		partition, parked, h, err := db.held(name, key)
		if err != nil {
			return 0, err
		}
		if !h.undecided { // then its head is a dead letter
			parked.findHead(h)
		}
		return apply(db, partition, parked, h, now()), nil
	})
	if err == nil {
		s.Wake()
	}
	return n, err
}

// SkipHeld implements relay.HeldStore.
func (s *Store) SkipHeld(ctx context.Context, name, key, by, reason string) error {
	_, err := s.decide(ctx, "SkipHeld", name, key,
		func(db *database, partition int, parked *parkedSet, h *heldRow, at time.Time) int {
			var l *letter
			if h.undecided {
				l = db.relays[name].latest[h.seq]
			} else if row := parked.take(h.seq); row != nil {
				l = db.bury(name, partition, row, "skipped", h.cause, h.attempts, at)
			}
			if l != nil && l.State == deadletter.Open {
				l.close(deadletter.Discarded, by, reason, at)
			}
			parked.letGo(h, at)
			return 1
		})
	return err
}

// DeadHeld implements relay.HeldStore.
func (s *Store) DeadHeld(ctx context.Context, name, key, by, reason string, all bool) (int, error) {
	return s.decide(ctx, "DeadHeld", name, key,
		func(db *database, partition int, parked *parkedSet, h *heldRow, at time.Time) int {
			n := 0
			for _, row := range slices.Clone(parked.waiting[key]) {
				if !all && row.msg.Sequence != h.seq {
					continue
				}
				parked.take(row.msg.Sequence)
				row.history = remember(row.history, 0, at, "given up by "+by)
				db.bury(name, partition, row, reason, h.cause, row.attempts, at)
				n++
			}
			parked.letGo(h, at)
			return n
		})
}
