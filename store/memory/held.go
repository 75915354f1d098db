package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// sets returns what a relay has parked, by partition; nothing for an unknown relay.
func (r records) sets(name string) []*parkedSet {
	if state := r.db.relays[name]; state != nil {
		return state.parked
	}
	return nil
}

// NextRelay implements store.HeldReader.
func (r records) NextRelay(_ context.Context, after string) (string, error) {
	for _, name := range slices.Sorted(maps.Keys(r.db.relays)) {
		if name > after && slices.ContainsFunc(r.sets(name), func(p *parkedSet) bool { return len(p.rows)+len(p.held) > 0 }) {
			return name, nil
		}
	}
	return "", nil
}

// HeldKeys implements store.HeldReader.
func (r records) HeldKeys(_ context.Context, q store.HeldQuery) (out []store.HeldInfo, _ error) {
	order := func(a, b store.HeldInfo) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Key, b.Key)) }
	for partition, set := range r.sets(q.Relay) {
		for _, h := range set.held {
			if info := r.db.heldInfo(q.Relay, partition, h); q.After == nil || order(info, *q.After) > 0 {
				out = append(out, info)
			}
		}
	}
	slices.SortFunc(out, order)
	return out[:min(len(out), q.Limit)], nil
}

// heldInfo describes a held key. The message that blocks it is a dead letter if the key waits for a decision.
func (db *database) heldInfo(name string, partition int, h *heldRow) store.HeldInfo {
	set := db.relays[name].parked[partition]
	info := store.HeldInfo{
		Relay: name, Partition: partition, Key: h.key, Sequence: h.seq, Reason: h.reason, Cause: h.cause,
		Attempts: h.attempts, Since: h.since, NextAttempt: h.next, Parked: min(len(set.waiting[h.key]), store.CountLimit),
	}
	if h.undecided {
		info.NextAttempt = time.Time{}
		if l := db.relays[name].latest[h.seq]; l != nil {
			info.MessageID = l.Message.ID
		}
	} else if row := set.rows[h.seq]; row != nil && row.waits {
		info.MessageID = row.msg.ID
	}
	return info
}

// HeldKey implements store.HeldReader.
func (r records) HeldKey(_ context.Context, name, key string) (store.HeldInfo, error) {
	partition, _, h, err := r.db.held(name, key)
	if err != nil {
		return store.HeldInfo{}, err
	}
	return r.db.heldInfo(name, partition, h), nil
}

// Queued implements store.HeldReader.
func (r records) Queued(_ context.Context, name, key string, limit int) (out []store.ParkedInfo, _ error) {
	partition, set, _, err := r.db.held(name, key)
	if err != nil {
		return nil, err
	}
	waiting := set.waiting[key]
	for _, row := range waiting[:min(len(waiting), limit)] {
		out = append(out, row.info(name, partition))
	}
	return out, nil
}

// parked returns the parked messages of a relay that a filter selects.
func (r records) parked(name string, selects func(*parkedRow) bool) (out []store.ParkedInfo) {
	for partition, set := range r.sets(name) {
		for _, row := range set.rows {
			if selects(row) {
				out = append(out, row.info(name, partition))
			}
		}
	}
	return out
}

// Parked implements store.HeldReader.
func (r records) Parked(_ context.Context, q store.ParkedQuery) ([]store.ParkedInfo, error) {
	order := func(a, b store.ParkedInfo) int {
		return cmp.Or(a.DueAt.Compare(b.DueAt), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Message.Sequence, b.Message.Sequence))
	}
	out := r.parked(q.Relay, func(row *parkedRow) bool { return !row.waits })
	out = slices.DeleteFunc(out, func(p store.ParkedInfo) bool { return q.After != nil && order(p, *q.After) <= 0 })
	slices.SortFunc(out, order)
	return out[:min(len(out), q.Limit)], nil
}

// ParkedByID implements store.HeldReader.
func (r records) ParkedByID(_ context.Context, name, id string) ([]store.ParkedInfo, error) {
	out := r.parked(name, func(row *parkedRow) bool { return row.msg.ID == id })
	slices.SortFunc(out, func(a, b store.ParkedInfo) int { return cmp.Compare(a.Message.Sequence, b.Message.Sequence) })
	return out, nil
}

// CountParked implements store.HeldReader.
func (r records) CountParked(_ context.Context, name string) (out []store.ParkedCount, _ error) {
	for _, relayName := range slices.Sorted(maps.Keys(r.db.relays)) {
		if name != "" && name != relayName {
			continue
		}
		counts := make(map[store.ParkReason]store.ParkedCount)
		for _, p := range r.parked(relayName, func(row *parkedRow) bool { return !row.waits }) {
			c := counts[p.Reason]
			if c.Count == 0 || p.ParkedAt.Before(c.Oldest) {
				c.Oldest = p.ParkedAt
			}
			c.Relay, c.Reason, c.Count = relayName, p.Reason, c.Count+1
			counts[p.Reason] = c
		}
		for _, reason := range slices.Sorted(maps.Keys(counts)) {
			out = append(out, counts[reason])
		}
	}
	return out, nil
}

func (r *parkedRow) info(name string, partition int) store.ParkedInfo {
	return store.ParkedInfo{
		Relay: name, Partition: partition, Message: clone(r.msg), Reason: r.reason, Attempts: r.attempts, ParkedAt: r.parkedAt,
		DueAt: r.dueAt, History: slices.Clone(r.history),
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

// Decision implements store.HeldReader.
func (r records) Decision(_ context.Context, id string) (store.Decision, error) {
	if d := r.db.decision(id); d != nil {
		return d.Decision, nil
	}
	return store.Decision{}, fmt.Errorf("decision %s: %w", id, store.ErrNoDecision)
}
