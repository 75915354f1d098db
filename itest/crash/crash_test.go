package crash

import (
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider/itest/process"
)

// shortLease lets leases expire during the test.
const shortLease = "    lease_ttl: 3s\n"

// TestCrash: pgbench publishes in its transactions while the relay is killed three times, a second process of it joins
// and leaves, the broker restarts, and one transaction stays open throughout. Nothing is lost, nothing invented, and the
// order of each key is kept.
func TestCrash(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shortLease)
	duration := loadTime(t, 8*time.Second)
	relay := w.startRelay()
	open := w.beginLongTransaction()
	began := time.Now()
	load := w.startLoad(duration+patience, 300) // until it is stopped: a slow machine needs longer for the disturbances

	var second *process.Process
	disturbances := []struct {
		name string
		do   func()
	}{
		{"the relay was killed", func() { w.killRelay(relay); relay = w.startRelay() }},
		{"a second process joined", func() { second = w.startRelay() }},
		{"the relay was killed again", func() { w.killRelay(relay); relay = w.startRelay() }},
		{"the broker restarted", func() { w.restartBroker(time.Second) }},
		{"the second process left", func() { w.stopRelay(second) }},
		{"the relay was killed a third time", func() { w.killRelay(relay); relay = w.startRelay() }},
	}
	w.awaitDelivery(load, "the start")
	for i, d := range disturbances {
		<-time.After(time.Until(began.Add(duration * time.Duration(i+1) / time.Duration(len(disturbances)+1))))
		d.do()
		w.awaitDelivery(load, d.name)
	}
	w.stopLoad(load)
	w.commit(open)

	outcome := w.check(w.committed())
	t.Logf("after %s of load: %s", duration, outcome)
	if !outcome.Kept() {
		t.Errorf("a promise broke: %q", outcome.Examples)
	}
	if outcome.Committed < 10*int(duration.Seconds()) { // a busy machine achieves a tenth of the load of an idle one
		t.Errorf("only %d transactions were committed in %s: that is no load", outcome.Committed, duration)
	}
	w.await("the status shows that all is delivered", func() bool { return w.settled() == "" })
	w.stopRelay(relay)
}

// settled says what is left according to the status; "" when everything is delivered.
func (w *world) settled() string {
	s := w.status()
	if s.Backlog.N+s.Parked.N+s.Held.N+s.Dead.N == 0 {
		return ""
	}
	return fmt.Sprintf("backlog %d, parked %d, held %d, dead %d", s.Backlog.N, s.Parked.N, s.Held.N, s.Dead.N)
}
