package brokertest

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider"
)

func testClosed(t *testing.T, s *suite) {
	msgs := batch("closed", 6, 1, "a", "")
	s.mustAccept(t.Context(), t, msgs[:3])
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	for i, err := range s.publish(t.Context(), t, msgs[3:]) {
		if err == nil {
			t.Errorf("message %s is accepted by a closed publisher", msgs[3+i].ID)
		}
	}
	s.checkArrived(t, "closed", msgs[:3])
}

// testClosedWhilePublishing checks that running calls return, and that messages reported as accepted have arrived.
func testClosedWhilePublishing(t *testing.T, s *suite) {
	var mu sync.Mutex
	accepted := make(map[string]bool)
	var calls sync.WaitGroup
	begun := make(chan struct{}, 1)
	for c := range 4 {
		calls.Go(func() {
			for n := int64(0); ; n++ {
				msgs := batch("closing", 90, 1+n*30, fmt.Sprintf("a%d", c), fmt.Sprintf("b%d", c), fmt.Sprintf("c%d", c))
				errs := s.publish(t.Context(), t, msgs)
				failed := false
				mu.Lock()
				for i, m := range msgs {
					accepted[m.ID] = accepted[m.ID] || errs[i] == nil
					failed = failed || errs[i] != nil
				}
				mu.Unlock()
				select {
				case begun <- struct{}{}:
				default:
				}
				if failed {
					return
				}
			}
		})
	}
	<-begun
	within(t, "Close while publishing", func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	within(t, "Publish while closing", calls.Wait)
	last := make(map[string]int64)
	seen := make(map[string]bool)
	for _, m := range s.Arrived(t, "closing") {
		if !seen[m.ID] && !s.features.Unordered && m.AggregateVersion <= last[m.Key] {
			t.Errorf("message %s arrived after number %d of its key", m.ID, last[m.Key])
		}
		seen[m.ID], last[m.Key] = true, m.AggregateVersion
	}
	for id, ok := range accepted {
		if ok && !seen[id] {
			t.Errorf("message %s is said to be accepted and has not arrived", id)
		}
	}
}

// checkNoLeaks checks that no goroutine is left after use, which runs as a subtest. Goroutines inherit the label of the
// goroutine that started them, so those of other tests do not count.
func checkNoLeaks(t *testing.T, use func(t *testing.T)) {
	t.Helper()
	label := fmt.Sprintf("brokertest-%s-%d", t.Name(), time.Now().UnixNano())
	pprof.Do(t.Context(), pprof.Labels("brokertest", label), func(context.Context) {
		t.Run("use", use)
	})
	deadline := time.Now().Add(patience)
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		left := labelled(label)
		if left == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("goroutines are left:\n%s", left)
		}
		<-poll.C
	}
}

// labelled returns the stacks of the goroutines with the label.
func labelled(label string) string {
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		return err.Error()
	}
	var found []byte
	for stack := range bytes.SplitSeq(profile.Bytes(), []byte("\n\n")) {
		if bytes.Contains(stack, []byte(label)) {
			found = append(append(found, stack...), '\n')
		}
	}
	return string(found)
}

// failedOf returns the messages that have an error.
func failedOf(msgs []*postrider.Message, errs []error) []*postrider.Message {
	var failed []*postrider.Message
	for i, m := range msgs {
		if errs[i] != nil {
			failed = append(failed, m)
		}
	}
	return failed
}
