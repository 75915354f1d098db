package crash

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/itest/process"
	"github.com/postrider/postrider/store"
)

const lease = 3 * time.Second

// TestKilledHolderIsReplaced: when the holder of leases is killed, its partitions deliver again within LeaseTTL.
func TestKilledHolderIsReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shortLease)
	victim, survivor := w.startPair()
	const duration = 5 * lease
	load := w.startLoad(duration, 300)
	w.awaitDelivery(load, "the start")

	orphaned := w.heldBy(victim)
	killed := time.Now()
	w.killRelay(victim)
	w.awaitLoad(load, duration)
	outcome := w.check(w.committed())
	t.Log(outcome)
	if !outcome.Kept() {
		t.Errorf("a promise broke: %q", outcome.Examples)
	}

	// The broker says when it stored each message. underway allows for messages in flight when the process was killed.
	const underway = 100 * time.Millisecond
	back, last := map[int]time.Duration{}, map[int]time.Duration{}
	var pause time.Duration // the longest of the other partitions, which says how busy the machine is
	for m, meta := range w.read(func() bool { return true }) {
		var f Fact
		if err := json.Unmarshal(m.Data(), &f); err != nil {
			t.Fatal(err)
		}
		after := meta.Timestamp.Sub(killed)
		p := postrider.PartitionOf(fmt.Sprintf("account/%d", f.Account), "", partitions)
		if _, known := back[p]; !known && after > underway {
			back[p] = after
		}
		if after > 0 && !slices.Contains(orphaned, p) {
			pause, last[p] = max(pause, after-last[p]), after
		}
	}
	slack := 500*time.Millisecond + pause
	for _, p := range orphaned {
		t.Logf("partition %d delivered again after %s", p, back[p])
		if back[p] == 0 || back[p] > lease+slack {
			t.Errorf("partition %d delivered again after %s, want at most %s and %s", p, back[p], lease, slack)
		}
	}
	w.stopRelay(survivor)
}

// TestPausedHolderChangesNothing: a process that is stopped for longer than its leases, with messages in flight, and then
// resumes delivers at most the messages in flight, and settles nothing.
func TestPausedHolderChangesNothing(t *testing.T) {
	t.Parallel()
	const inFlight = 200
	w := newWorld(t, fmt.Sprintf("%s    max_in_flight: %d\n", shortLease, inFlight))
	paused, other := w.startPair()
	const duration = 3 * lease
	load := w.startLoad(duration, 500)
	w.awaitDelivery(load, "the start")
	// Pause the broker briefly, so that messages are in flight when the process is stopped.
	w.signal(w.broker.Process, syscall.SIGSTOP)
	<-time.After(500 * time.Millisecond)
	w.signal(paused, syscall.SIGSTOP)
	w.signal(w.broker.Process, syscall.SIGCONT)
	w.await("the other process holds all partitions", func() bool { return len(w.heldBy(other)) == partitions })
	w.awaitLoad(load, duration)
	if outcome := w.check(w.committed()); !outcome.Kept() {
		t.Fatalf("before it woke up: %s: %q", outcome, outcome.Examples)
	}
	w.await("everything is settled", func() bool { return w.settled() == "" })
	before, stored := w.status(), w.stored()

	w.signal(paused, syscall.SIGCONT)
	w.await("it holds partitions again", func() bool { return len(w.heldBy(paused)) > 0 })
	again := w.stored() - stored
	t.Logf("after it woke up %d messages came again", again)
	if again > inFlight {
		t.Errorf("%d messages came again, more than were in flight (%d)", again, inFlight)
	}
	for i, p := range w.status().Partitions {
		if was := before.Partitions[i]; p.Settlements < was.Settlements || p.Position != was.Position {
			t.Errorf("a promise broke: partition %d: from settlement %d, position %d to settlement %d, position %d", p.Partition, was.Settlements, was.Position,
				p.Settlements, p.Position)
		}
	}
	w.awaitLoad(w.startLoad(time.Second, 300), time.Second)
	outcome := w.check(w.committed())
	t.Log(outcome)
	if !outcome.Kept() {
		t.Errorf("a promise broke: %q", outcome.Examples)
	}
	w.stopRelay(paused)
	w.stopRelay(other)
}

// partitions is the default number of partitions of an outbox.
const partitions = 8

// startPair starts two processes of the relay and waits until they share the partitions.
func (w *world) startPair() (a, b *process.Process) {
	w.t.Helper()
	a, b = w.startRelay(), w.startRelay()
	w.await("two processes share the partitions", func() bool {
		return len(w.heldBy(a)) == partitions/2 && len(w.heldBy(b)) == partitions/2
	})
	return a, b
}

func (w *world) signal(p *process.Process, s syscall.Signal) {
	w.t.Helper()
	if err := p.Signal(s); err != nil {
		w.t.Fatalf("%s: %v", s, err)
	}
}

// heldBy are the partitions that a process holds.
func (w *world) heldBy(p *process.Process) []int {
	w.t.Helper()
	var held []int
	for _, s := range w.status().Partitions {
		if owns(s, p) {
			held = append(held, s.Partition)
		}
	}
	return held
}

// owns compares the process ID, which is part of an owner's name: host-pid-random.
func owns(s store.PartitionStatus, p *process.Process) bool {
	parts := strings.Split(s.Owner, "-")
	return len(parts) >= 3 && parts[len(parts)-2] == fmt.Sprint(p.PID())
}
