package inboxtest

import (
	"testing"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox"
)

// Grown tests that a log gets partitions, all of whose messages so far are processed: nothing is lost or processed twice, keys stay in order, and
// processes of the consumer share the new ones. Grow returns the source from then on. Consumers whose subscribers find new partitions
// themselves run meanwhile; others are restarted.
func Grown[Tx any](t *testing.T, h Harness[Tx], source Source, restart bool, grow func(t testing.TB) Source) {
	b := &brokerTest[Tx]{world: newWorld(t, h), order: make(map[string][]string), source: source, caps: source.Join(t).Capabilities()}
	b.calm.Store(true)
	b.cfg = inbox.ConsumerConfig{LeaseTTL: b.keptLease()}
	processes := []*process[Tx]{b.join(), b.join()}
	total := b.publish()
	effects := func() bool { return len(b.effects()) >= total }
	b.until("every message has its effect", effects)
	before := b.positions()
	stop := func() {
		for _, p := range processes {
			p.stop()
			if st := p.Stats(); st.LogsReplaced != 0 || st.Missing != 0 {
				t.Errorf("stats: %+v, want the same log", st)
			}
		}
	}
	if restart {
		stop()
	}
	b.source = grow(t)
	if restart {
		processes = []*process[Tx]{b.join(), b.join()}
	}
	for range 6 {
		total += b.publish()
	}
	b.until("every later message has its effect", effects)
	stop()
	if now := b.positions(); now <= before {
		t.Errorf("%d partitions have a position, had %d", now, before)
	}
	b.outcome(total)
}

// positions counts the partitions of a log in which the consumer has a position.
func (w *world[Tx]) positions() int {
	w.t.Helper()
	all, err := w.store.LogPositions(w.ctx, consumer)
	w.must(err, "read the positions")
	return len(all)
}

// Compacted tests a consumer of a log that is compacted while it is down: it reads what is left, and misses nothing. Compact
// removes the message with an ID and others of its key, and returns the IDs of those that are left.
func Compacted[Tx any](t *testing.T, h Harness[Tx], source Source, compact func(t testing.TB, id string) (left []string)) {
	w := newWorld(t, h)
	start := func() *process[Tx] {
		return w.start(setting[Tx]{reads: source.Join(t), cfg: inbox.ConsumerConfig{LeaseTTL: w.keptLease()}})
	}
	publish := func() string {
		m := w.message("a")
		m.Topic = source.Topic
		for _, err := range source.Publish(t.Context(), []*postrider.Message{m}) {
			w.must(err, "publish")
		}
		return m.ID
	}
	want := []string{publish(), publish(), publish()}
	p := start()
	w.untilEffects(want...)
	p.stop()
	for range 4 {
		publish()
	}
	left := compact(t, want[len(want)-1]) // which the position remembers
	if len(left) == 0 || len(left) > 3 {
		t.Fatalf("compaction left %v", left)
	}
	want = append(want, left...)
	p = start()
	w.untilEffects(want...)
	want = append(want, publish())
	w.untilEffects(want...)
	p.stop()
	w.want("order", w.effectsOf("a"), want)
	if st := p.Stats(); st.LogsReplaced != 0 || st.Missing != 0 || st.Duplicates != 0 {
		t.Errorf("stats: %+v, want the same log with gaps", st)
	}
}
