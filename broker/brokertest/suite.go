package brokertest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider"
)

// patience bounds everything a publisher gets time for: reconnecting, timeouts, closing.
const patience = 5 * time.Minute

// suite is the harness of one test and what the tests share.
type suite struct {
	Harness
	features Features
}

func newSuite(t *testing.T, f Features, h Harness) *suite {
	t.Helper()
	f.checkComplete(t, h)
	s := &suite{Harness: h, features: f}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// batch returns n messages of topic, distributed to the keys in turn. AggregateVersion is a message's number within its
// key, starting at first.
func batch(topic string, n int, first int64, keys ...string) []*postrider.Message {
	next := make(map[string]int64, len(keys))
	msgs := make([]*postrider.Message, n)
	for i := range msgs {
		key := keys[i%len(keys)]
		msgs[i] = message(topic, key, first+next[key])
		next[key]++
	}
	return msgs
}

func message(topic, key string, version int64) *postrider.Message {
	return &postrider.Message{
		ID:               fmt.Sprintf("%s|%s|%d", topic, key, version),
		Type:             "test.happened",
		Source:           "/brokertest",
		Topic:            topic,
		Key:              key,
		Time:             time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC),
		AggregateVersion: version,
		ContentType:      "application/json",
		Payload:          fmt.Appendf(nil, `{"n":%d}`, version),
	}
}

// publish publishes msgs in one call, or in as many as MaxBatch requires, and checks the contract. Messages after a
// failed one of their key in an earlier call are not sent.
func (s *suite) publish(ctx context.Context, t testing.TB, msgs []*postrider.Message) []error {
	t.Helper()
	size := s.Publisher.Capabilities().MaxBatch
	if size == 0 {
		size = max(len(msgs), 1)
	}
	errs := make([]error, len(msgs))
	failed := make(map[string]int)
	for from := 0; from < len(msgs); from += size {
		var part []*postrider.Message
		var at []int
		for i := from; i < min(from+size, len(msgs)); i++ {
			if head, follows := failed[msgs[i].Key]; follows {
				errs[i] = postrider.PredecessorFailed(msgs[head], errs[head])
				continue
			}
			part, at = append(part, msgs[i]), append(at, i)
		}
		partErrs := s.Publisher.Publish(ctx, part)
		if partErrs == nil {
			continue
		}
		if len(partErrs) != len(part) {
			t.Fatalf("%d results for %d messages", len(partErrs), len(part))
		}
		checkQueued(t, part, partErrs)
		for j, err := range partErrs {
			errs[at[j]] = err
			if err != nil && part[j].Key != "" {
				failed[part[j].Key] = at[j]
			}
		}
	}
	return errs
}

// checkQueued checks that all messages after a failed one of their key report failure.
func checkQueued(t testing.TB, msgs []*postrider.Message, errs []error) {
	t.Helper()
	failed := make(map[string]string)
	for i, m := range msgs {
		if head, follows := failed[m.Key]; m.Key != "" && follows && errs[i] == nil {
			t.Errorf("message %s reports success after %s, which failed", m.ID, head)
		}
		if errs[i] != nil {
			failed[m.Key] = m.ID
		}
	}
}

// deliver publishes until every message is accepted, like a relay: failed messages are sent again, in order. It returns
// the number of failures.
func (s *suite) deliver(ctx context.Context, t testing.TB, msgs []*postrider.Message) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	probe := time.NewTicker(10 * time.Millisecond)
	defer probe.Stop()
	failures := 0
	for {
		errs := s.publish(ctx, t, msgs)
		var again []*postrider.Message
		var last error
		for i, err := range errs {
			if err == nil {
				continue
			}
			if postrider.OutcomeOf(err).Kind == postrider.DeadLettered {
				t.Fatalf("message %s is given up: %v", msgs[i].ID, err)
			}
			again, last = append(again, msgs[i]), err
		}
		if len(again) == 0 {
			return failures
		}
		failures += len(again)
		msgs = again
		select {
		case <-probe.C:
		case <-ctx.Done():
			t.Fatalf("%d messages are not delivered after %s, the last for: %v", len(again), patience, last)
		}
	}
}

// checkArrived checks that exactly the messages in want arrived under topic: none missing, none unexpected, first copies
// in order per key, and no duplicates if the broker deduplicates.
func (s *suite) checkArrived(t testing.TB, topic string, want []*postrider.Message) {
	t.Helper()
	missing := make(map[string]bool, len(want))
	for _, m := range want {
		missing[m.ID] = true
	}
	last := make(map[string]int64)
	seen := make(map[string]bool, len(want))
	for _, m := range s.Arrived(t, topic) {
		if seen[m.ID] {
			if !s.features.NoDedupe {
				t.Errorf("message %s arrived twice", m.ID)
			}
			continue
		}
		seen[m.ID] = true
		if !missing[m.ID] {
			t.Errorf("message %s arrived, which is not expected", m.ID)
		}
		delete(missing, m.ID)
		if m.Key != "" && !s.features.Unordered && m.AggregateVersion <= last[m.Key] {
			t.Errorf("message %s arrived after number %d of its key", m.ID, last[m.Key])
		}
		last[m.Key] = m.AggregateVersion
	}
	if len(missing) > 0 {
		t.Errorf("%d of %d messages did not arrive", len(missing), len(want))
	}
}

// mustAccept publishes messages that must all be accepted at the first attempt.
func (s *suite) mustAccept(ctx context.Context, t testing.TB, msgs []*postrider.Message) {
	t.Helper()
	for i, err := range s.publish(ctx, t, msgs) {
		if err != nil {
			t.Fatalf("message %s: %v", msgs[i].ID, err)
		}
	}
}

// within fails the test if f takes longer than patience.
func within(t testing.TB, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s has not returned after %s", what, patience)
	}
}

func ids(msgs ...*postrider.Message) []string {
	ids := make([]string, len(msgs))
	for i, m := range msgs {
		ids[i] = m.ID
	}
	return ids
}
