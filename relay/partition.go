package relay

import (
	"context"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/attempt"
	"github.com/postrider/postrider/relay/internal/schedule"
	"github.com/postrider/postrider/store"
)

// partition is one partition that this process holds. Its embedded part says what is worked on; it ends no later than the
// lease.
type partition struct {
	*schedule.Partition[message]
	// expiry fires at Until, on the relay's own monotonic clock: the end of the lease, counted from before it
	// was requested, less a margin. ctx ends when the lease is lost.
	expiry *time.Timer
	ctx    context.Context
	end    context.CancelFunc

	noted   int64        // position of the cursor up to which the progress is noted
	fetched store.Cursor // Next of the last batch
	more    bool         // there are messages to read, perhaps
	reading bool         // a fetch is in progress
	repeat  *sent        // a settlement that waits to be repeated
	// topics are the patterns of the filter in effect, none for all topics; elsewhere are those of other relays.
	topics, elsewhere []string
}

// hold begins the work on a partition whose lease was granted; asked is when it was requested.
func (r *Relay) hold(l *store.Lease, asked time.Time) {
	p := &partition{Partition: r.sched.Hold(l), noted: l.Cursor.Position, fetched: l.Cursor, more: true}
	p.ctx, p.end = context.WithCancel(attempt.WithLease(r.calls, attempt.Lease{Partition: l.Partition, Token: l.Token}))
	p.setFilter(l.Filter, r.cfg.Topics)
	r.extend(p, asked)
	r.partitions[l.Partition] = p
	r.await()
}

// item is one message in memory.
type item = schedule.Item[message]

// message is what a relay keeps with an item.
type message struct {
	*postrider.Message
	partition *partition
	// foreign: the filter in effect takes the message's topic, but this process is not configured for it.
	foreign bool
	// err is store.Entry.Err.
	err error
	// parkedFor and reason are copied from the entry.
	parkedFor time.Duration
	reason    store.ParkReason
}

// newItem returns the item of an entry; its key and sequence stay, whatever a handler does to the message.
func (r *Relay) newItem(p *partition, e *store.Entry) item {
	m, key := e.Message, checkEntry(e)
	return item{
		Key: key, Sequence: m.Sequence, Size: m.Size(), Attempts: e.Attempts,
		Message: message{
			Message: m, partition: p, err: e.Err, parkedFor: e.ParkedFor, reason: e.Reason,
			foreign: r.publish == nil && !r.cfg.takes(m.Topic) && p.takes(m.Topic),
		},
	}
}

// newSchedule returns the schedule of a relay with this configuration.
func (c *Config) newSchedule(transactions bool, outlived schedule.Outlived) *schedule.Schedule[message] {
	parked := schedule.Budget{MaxMessages: max(c.MaxInFlight/3, 1), MaxBytes: max(c.MaxInFlightBytes/3, 1)}
	fresh := schedule.Budget{MaxMessages: max(c.MaxInFlight-parked.MaxMessages, 1), MaxBytes: max(c.MaxInFlightBytes-parked.MaxBytes, 1)}
	return schedule.New[message](schedule.Config{
		Transactions: transactions, TxBatch: c.TxBatch, TakeBytes: max(fresh.MaxBytes/(2*c.Concurrency), 1),
		HoldOnDead: c.OnDead == HoldKey, MaxHeld: c.MaxHeldKeys, ParkAfter: c.ParkAfter, LeaseTTL: c.LeaseTTL,
		SettleBatch: c.SettleBatch, Outlived: outlived, Fresh: fresh, Parked: parked,
		Unloading: func() {
			c.Logger.Warn("more keys are held than the relay keeps in memory; it looks them up in the database",
				"relay", c.Name, "max_held_keys", c.MaxHeldKeys)
		},
	})
}

// wake wakes the loops for what an operation on the schedule asks for.
func (r *Relay) wake() {
	w := r.sched.Wake
	r.sched.Wake = schedule.Wake{}
	if w.Settle {
		signal(r.settleWake)
	}
	if w.Due {
		signal(r.dueWake)
	}
	if w.Left {
		signal(r.handoverWake)
	}
}

// wakeAndUnlock unlocks mu after operations on the schedule that may have made work: it wakes the loops, and the workers if there is
// any. After operations that cannot, mu.Unlock is enough.
func (r *Relay) wakeAndUnlock() {
	r.wake()
	if r.sched.Ready() > 0 || r.life.Err() != nil {
		r.changed.Broadcast()
	}
	r.mu.Unlock()
}
