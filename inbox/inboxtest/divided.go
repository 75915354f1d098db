package inboxtest

import "testing"

// Divided tests that consumers go on when a log is divided into partitions, while they run or are down: everything is processed once, and in
// order per key. The publishers of the sources are those from before and after it.
func Divided[Tx any](t *testing.T, h Harness[Tx], whole, parts Source, divide func(t testing.TB)) {
	b := &brokerTest[Tx]{world: newWorld(t, h), order: make(map[string][]string), source: whole, caps: whole.Join(t).Capabilities()}
	total := 0
	publish := func(s Source) {
		b.source = s
		total += b.publish()
	}
	processes := []*process[Tx]{b.join(), b.join()}
	publish(whole)
	b.until("something has its effect", func() bool { return len(b.effects()) >= total/2 })
	publish(whole)
	processes[0].kill()
	divide(t)
	for _, s := range []Source{parts, whole, parts} { // not all publishers change at once
		publish(s)
	}
	processes[0] = b.join()
	publish(parts)
	processes[1].stop()
	publish(parts)
	processes[1] = b.join()
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
