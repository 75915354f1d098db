package relay

// budget is how much memory messages of one kind, fresh or parked, may use and do use. Each kind has its own, so that a storm
// of retries leaves room for fresh messages, and vice versa.
type budget struct {
	messages, bytes       int
	maxMessages, maxBytes int
}

// budgets divides the bounds of the configuration: a third is for parked messages.
func (c *Config) budgets() (fresh, parked budget) {
	parked = budget{maxMessages: max(c.MaxInFlight/3, 1), maxBytes: max(c.MaxInFlightBytes/3, 1)}
	fresh = budget{maxMessages: max(c.MaxInFlight-parked.maxMessages, 1), maxBytes: max(c.MaxInFlightBytes-parked.maxBytes, 1)}
	return fresh, parked
}

// worthReading is how much room, in messages, makes another read worthwhile: a quarter, so that the relay keeps reading while
// three quarters are in memory, but not for a few messages at a time.
func (b *budget) worthReading() int { return max(b.maxMessages/4, 1) }

// load accounts for an item that is taken into memory, drop for one that leaves it.
func (r *Relay) load(it *item, b *budget) {
	r.order++
	it.order, it.since, it.budget, it.size = r.order, r.now, b, it.msg.Size()
	it.foreign = r.publish == nil && !r.cfg.takes(it.msg.Topic) && it.partition.takes(it.msg.Topic)
	b.messages++
	b.bytes += it.size
}

func (r *Relay) drop(it *item) {
	it.budget.messages--
	it.budget.bytes -= it.size
	it.msg = nil
}

// inMemory is the number of messages in memory.
func (r *Relay) inMemory() int { return r.fresh.messages + r.parked.messages }

// recorded counts one outcome and wakes the settler.
func (r *Relay) recorded(p *partition) {
	p.count++
	p.outcomes++
	r.unsettled++
	if r.unsettled == 1 || r.unsettled >= r.cfg.SettleBatch {
		signal(r.settleWake)
	}
}
