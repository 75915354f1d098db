package memory

import (
	"cmp"
	"context"
	"slices"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// Logged implements store.LogReader.
func (r records) Logged(_ context.Context, q store.LogQuery) (store.LogPage, error) {
	page, present := store.LogPage{Last: q.UpTo}, r.db.snapshot()
	for partition, log := range r.db.log {
		var at cursor
		rel := r.db.relays[q.Relay]
		if rel != nil && rel.cursors[partition] != nil {
			var err error
			if at, err = parseCursor(rel.cursors[partition].cursor); err != nil {
				return page, err
			}
		}
		for row := range log.fresh(q.After, present) {
			if row.seq > q.UpTo {
				break
			}
			page.Messages = append(page.Messages, store.LoggedMessage{
				Sequence: row.seq, Partition: partition, ID: row.msg.ID, Topic: row.msg.Topic, Key: row.msg.Key, Type: row.msg.Type,
				Tenant: row.msg.Tenant, CreatedAt: row.msg.CreatedAt, Delivered: rel != nil && at.delivered(row) && rel.settled(partition, row.seq),
			})
		}
	}
	slices.SortFunc(page.Messages, func(a, b store.LoggedMessage) int { return cmp.Compare(a.Sequence, b.Sequence) })
	if len(page.Messages) >= q.Limit && q.Limit > 0 {
		page.Messages = page.Messages[:q.Limit]
		page.Last = page.Messages[q.Limit-1].Sequence
	}
	return page, nil
}

// settled reports whether a message that a cursor has passed is neither parked nor an open or discarded dead letter.
func (r *relayState) settled(partition int, seq int64) bool {
	l := r.latest[seq]
	return r.parked[partition].rows[seq] == nil && (l == nil || l.State == store.DeadRedriven)
}

// LogEnd implements store.LogReader.
func (r records) LogEnd(context.Context) (last int64, _ error) {
	present := r.db.snapshot()
	for _, log := range r.db.log {
		for row := range log.fresh(0, present) {
			last = max(last, row.seq)
		}
	}
	return last, nil
}

// RelayLog implements store.LogReader.
func (r records) RelayLog(_ context.Context, relay string) (out store.RelayLog, err error) {
	out.Topics = slices.Clone(r.db.filters(now())[relay])
	if rel := r.db.relays[relay]; rel != nil {
		for _, c := range rel.cursors {
			if c != nil {
				out.Position = max(out.Position, c.cursor.Position)
			}
		}
	}
	return out, nil
}

// CountAllParked implements store.LogReader.
func (r records) CountAllParked(_ context.Context, relay string, limit int) (n int, _ error) {
	for _, set := range r.sets(relay) {
		n += len(set.rows)
	}
	return min(n, limit), nil
}

// ParkReplayed implements store.LogWriter.
func (r records) ParkReplayed(_ context.Context, m store.ReplayedMessages) (n int, _ error) {
	at, rel := now(), r.db.relay(m.Relay)
	for _, one := range m.Messages {
		parked, row := rel.parked[one.Partition], r.db.log[one.Partition].find(one.Sequence)
		if row == nil || row.msg.Type == store.ErasedType || !rel.settled(one.Partition, one.Sequence) {
			continue
		}
		msg := clone(row.msg)
		if msg.Headers == nil {
			msg.Headers = make(map[string]string)
		}
		for name, value := range m.Headers {
			msg.Headers[name] = value
		}
		copied := &parkedRow{
			msg: msg, undecodable: row.undecodable, size: row.size, key: msg.Key, parkedAt: at, reason: store.ParkReplayed,
			history: []postrider.AttemptInfo{{At: at, Cause: cut(m.Entry)}},
		}
		if copied.waits = msg.Key != ""; !copied.waits {
			copied.dueAt = at
		} else if parked.held[msg.Key] == nil {
			parked.putHeld(&heldRow{key: msg.Key, seq: one.Sequence, reason: store.ParkReplayed, since: at, next: at})
		}
		parked.put(copied)
		n++
	}
	return n, nil
}
