package brokertest

import (
	"bytes"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider"
)

func testCapabilities(t *testing.T, s *suite) {
	c := s.Publisher.Capabilities()
	if c.Ordered == s.features.Unordered {
		t.Errorf("Ordered is %v, Features.Unordered is %v", c.Ordered, s.features.Unordered)
	}
	if (c.DedupeWindow == 0) != s.features.NoDedupe {
		t.Errorf("DedupeWindow is %s, Features.NoDedupe is %v", c.DedupeWindow, s.features.NoDedupe)
	}
	if (c.MaxMessageBytes == 0) != s.features.NoSizeLimit {
		t.Errorf("MaxMessageBytes is %d, Features.NoSizeLimit is %v", c.MaxMessageBytes, s.features.NoSizeLimit)
	}
	if c.MaxBatch < 0 || c.MaxMessageBytes < 0 || c.DedupeWindow < 0 {
		t.Errorf("a capability is negative: %+v", c)
	}
	s.mustAccept(t.Context(), t, batch("capable", 1, 1, ""))
	if again := s.Publisher.Capabilities(); again != c {
		t.Errorf("capabilities changed from %+v to %+v", c, again)
	}
}

func testEmptyBatch(t *testing.T, s *suite) {
	for _, msgs := range [][]*postrider.Message{nil, {}} {
		if errs := s.Publisher.Publish(t.Context(), msgs); len(errs) != 0 {
			t.Errorf("an empty batch returned %v", errs)
		}
	}
}

// testFidelity sends messages with everything that is hard to transport.
func testFidelity(t *testing.T, s *suite) {
	want := hardToCarry()
	for _, topic := range []string{
		"fidelity", "orders.v1.placed", "with space", "star*and>more", "..dots..", "$JS.API.INFO", "percent%20", "größe/🚚",
		strings.Repeat("t", 249),
	} {
		var sent []*postrider.Message
		for i, m := range want {
			c := *m
			c.ID, c.Topic = fmt.Sprintf("%s-%x-%d", m.ID, topic[:min(8, len(topic))], i), topic
			sent = append(sent, &c)
		}
		s.mustAccept(t.Context(), t, sent)
		got := s.Arrived(t, topic)
		if len(got) != len(sent) {
			t.Fatalf("topic %q: %d messages arrived, want %d", topic, len(got), len(sent))
		}
		byID := make(map[string]*postrider.Message)
		for _, m := range got {
			byID[m.ID] = m
		}
		for _, m := range sent {
			if byID[m.ID] == nil {
				t.Errorf("topic %q: message %q is missing", topic, m.ID)
				continue
			}
			checkSame(t, byID[m.ID], m)
		}
	}
}

// hardToCarry returns messages with everything that is hard to transport. The caller sets their topics.
func hardToCarry() []*postrider.Message {
	binary := make([]byte, 512)
	for i := range binary {
		binary[i] = byte(i)
	}
	base := func(id string) *postrider.Message {
		m := message("fidelity", "order/42", 1)
		m.ID = id
		return m
	}
	plain := base("plain")
	full := base("full")
	full.Subject, full.Tenant = "order 42", "tenant-1"
	full.Key = "Bestellung/42 – größer\x7f"
	full.SchemaVersion, full.AggregateVersion = 3, 1<<53+1
	full.CorrelationID, full.CausationID = "correlation/1", "causation 2"
	full.Time = time.Date(2026, 11, 20, 16, 28, 29, 123456789, time.UTC)
	full.Headers = map[string]string{
		"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"X-Mixed":     "Case", "x-mixed-2": "a: b, c; \"d\" 100%25 %", "größe": "ß ✓ 🚚",
		"spaces inside": "  leading and trailing  ", "lines": "one\r\ntwo\n\tthree", "empty": "",
		"colon:name": "v", "ce-type": "not the type", "nats-msg-id": "not the id", "long": strings.Repeat("ü", 2000),
	}
	raw := base("ünïcode 🚚 id")
	raw.ContentType, raw.Payload = "application/octet-stream", binary
	empty := base("empty")
	empty.Payload, empty.Key = []byte{}, ""
	text := base("text")
	text.ContentType, text.Payload = "text/plain; charset=utf-8", []byte("naïve\r\n\r\n🚚\x00")

	return []*postrider.Message{plain, full, raw, empty, text}
}

func checkSame(t *testing.T, got, want *postrider.Message) {
	t.Helper()
	type attribute struct{ got, want any }
	for name, a := range map[string]attribute{
		"ID": {got.ID, want.ID}, "Type": {got.Type, want.Type}, "Source": {got.Source, want.Source},
		"Topic": {got.Topic, want.Topic}, "Key": {got.Key, want.Key}, "Subject": {got.Subject, want.Subject},
		"Tenant": {got.Tenant, want.Tenant}, "Time": {got.Time.UTC(), want.Time.UTC()},
		"SchemaVersion":    {got.SchemaVersion, want.SchemaVersion},
		"AggregateVersion": {got.AggregateVersion, want.AggregateVersion},
		"ContentType":      {got.ContentType, want.ContentType},
		"CorrelationID":    {got.CorrelationID, want.CorrelationID}, "CausationID": {got.CausationID, want.CausationID},
	} {
		if a.got != a.want {
			t.Errorf("topic %q, message %q: %s arrived as %q, sent as %q", want.Topic, want.ID, name, a.got, a.want)
		}
	}
	if !bytes.Equal(got.Payload, want.Payload) {
		t.Errorf("topic %q, message %q: payload arrived as %.80q, sent as %.80q", want.Topic, want.ID, got.Payload, want.Payload)
	}
	if len(got.Headers)+len(want.Headers) > 0 && !maps.Equal(got.Headers, want.Headers) {
		t.Errorf("topic %q, message %q: headers arrived as %.300q, sent as %.300q", want.Topic, want.ID, got.Headers, want.Headers)
	}
}

func testOneKey(t *testing.T, s *suite) {
	msgs := batch("one", 500, 1, "order/1")
	s.mustAccept(t.Context(), t, msgs)
	s.checkArrived(t, "one", msgs)
}

// testManyKeys is also the test of a huge batch: more messages than a relay ever has in one call.
func testManyKeys(t *testing.T, s *suite) {
	keys := []string{""}
	for i := range 1500 {
		keys = append(keys, fmt.Sprintf("order/%d", i))
	}
	msgs := batch("many", 5_000, 1, keys...)
	s.deliver(t.Context(), t, msgs) // a slow machine may exceed the timeout for answers
	s.checkArrived(t, "many", msgs)
}

func testConcurrentCalls(t *testing.T, s *suite) {
	var all []*postrider.Message
	var calls sync.WaitGroup
	for c := range 8 {
		var own []*postrider.Message
		for n := range 5 {
			own = append(own, batch("concurrent", 60, int64(1+n*20), fmt.Sprintf("a%d", c), fmt.Sprintf("b%d", c), fmt.Sprintf("c%d", c))...)
		}
		all = append(all, own...)
		calls.Go(func() {
			for n := range 5 {
				for i, err := range s.publish(t.Context(), t, own[n*60:(n+1)*60]) {
					if err != nil {
						t.Errorf("message %s: %v", own[n*60+i].ID, err)
					}
				}
			}
		})
	}
	calls.Wait()
	s.checkArrived(t, "concurrent", all)
}

// testSentAgain sends accepted messages again, together with new ones, as after a crash.
func testSentAgain(t *testing.T, s *suite) {
	msgs := batch("again", 60, 1, "a", "b", "")
	s.mustAccept(t.Context(), t, msgs[:30])
	s.mustAccept(t.Context(), t, msgs)
	s.mustAccept(t.Context(), t, msgs)
	s.checkArrived(t, "again", msgs)
}

// testTooLarge sends messages below and above the size limit. A message above it is dead-lettered before anything is
// sent; later messages of its key are not, and are sent in the next call.
func testTooLarge(t *testing.T, s *suite) {
	limit := s.Publisher.Capabilities().MaxMessageBytes
	msgs := batch("large", 9, 1, "a", "b", "")
	sized := func(m *postrider.Message, size int) {
		m.ContentType, m.Payload = "application/octet-stream", nil
		m.Payload = bytes.Repeat([]byte{'x'}, size-m.Size())
	}
	sized(msgs[1], limit)   // the first of b just fits
	sized(msgs[3], limit+1) // the second of a is one byte too large
	sized(msgs[5], 2*limit) // and the second without a key is twice the limit
	errs := s.publish(t.Context(), t, msgs)
	for i, err := range errs {
		o := postrider.OutcomeOf(err)
		switch i {
		case 3, 5:
			if o.Kind != postrider.DeadLettered || o.Reason == "" {
				t.Errorf("too large message %s: %v, want dead with a reason", msgs[i].ID, err)
			}
		case 6:
			if o.Kind != postrider.Retried {
				t.Errorf("follower %s of a dead message: %v, want an error that is retried", msgs[i].ID, err)
			}
		default:
			if err != nil {
				t.Errorf("message %s: %v", msgs[i].ID, err)
			}
		}
	}
	s.deliver(t.Context(), t, msgs[6:7])
	s.checkArrived(t, "large", append(append(msgs[:3:3], msgs[4]), msgs[6:]...))
}
