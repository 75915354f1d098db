package inboxtest

import "testing"

// Divided tests that consumers go on when a log is divided into partitions, while they run or are down: everything is processed once, and in
// order per key. The publishers of the sources are those from before and after it.
func Divided[Tx any](t *testing.T, h Harness[Tx], whole, parts Source, divide func(t testing.TB)) {
	b := &brokerTest[Tx]{world: newWorld(t, h), order: make(map[string][]string), source: whole, caps: whole.Join(t).Capabilities()}
	total := 0
	publish := func(s Source) (n int) {
		b.source = s
		n = b.publish()
		total += n
		return n
	}
	first := b.join()
	publish(whole)
	b.until("something has its effect", func() bool { return len(b.effects()) >= total/2 })
	divide(t)
	later := 0 // is what first does not read until it knows
	for range 2 {
		later += publish(parts)
		publish(whole) // not all publishers change at once
	}
	b.until("the others have their effect", func() bool { return len(b.effects()) >= total-later })
	second := b.join()
	publish(parts)
	second.kill()
	publish(parts)
	processes := []*process[Tx]{first, b.join()}
	publish(parts)
	first.stop()
	publish(parts)
	b.calm.Store(true)
	b.until("every message has its effect", func() bool { return len(b.effects()) >= total })
	for _, p := range processes {
		p.stop()
	}
	b.outcome(total)
	p, before := b.join(), total
	publish(parts)
	b.until("the last messages have their effect", func() bool { return len(b.effects()) >= total })
	p.stop()
	// Some are published twice.
	if st := p.Stats(); st.Received > int64(2*(total-before)) || st.LogsReplaced != 0 || st.Missing != 0 {
		t.Errorf("stats: %+v, want that only the last messages are read", st)
	}
}
