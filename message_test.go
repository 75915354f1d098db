package postrider

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func TestFillDefaults(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 123_456_789, time.FixedZone("", 3600))
	m := &Message{Type: "order.placed"}
	m.FillDefaults("orders", now)
	if len(m.ID) != 36 {
		t.Errorf("ID = %q, want a UUID", m.ID)
	}
	want := Message{ID: m.ID, Type: "order.placed", Source: "orders", Topic: "order.placed",
		Time: now.UTC().Truncate(time.Microsecond), ContentType: "application/json"}
	requireEqual(t, m, &want)

	full := Message{ID: "1", Type: "t", Source: "s", Topic: "p", ContentType: "text/plain", Time: time.Unix(1, 0)}
	filled := full
	filled.FillDefaults("orders", now)
	requireEqual(t, &filled, &full)
}

func TestSizeCountsPayloadHeadersAndText(t *testing.T) {
	t.Parallel()
	m := &Message{ID: "1", Type: "22", Source: "333", Topic: "4444", Key: "55555", Subject: "666666", Tenant: "7777777",
		ContentType: "88888888", CorrelationID: "999999999", CausationID: "aaaaaaaaaa", Payload: make([]byte, 100),
		Headers: map[string]string{"abc": "de"}}
	if got := m.Size(); got != 55+100+5 {
		t.Errorf("Size = %d, want %d", got, 55+100+5)
	}
}

// requireEqual compares messages; times by the instant, and an empty payload equals nil.
func requireEqual(t *testing.T, got, want *Message) {
	t.Helper()
	if d := difference(got, want); d != "" {
		t.Fatalf("messages differ in %s:\n got %+v\nwant %+v", d, got, want)
	}
}

func difference(got, want *Message) string {
	switch {
	case !got.Time.Equal(want.Time):
		return "Time"
	case !got.DeliverAt.Equal(want.DeliverAt):
		return "DeliverAt"
	case !got.CreatedAt.Equal(want.CreatedAt):
		return "CreatedAt"
	case !bytes.Equal(got.Payload, want.Payload):
		return "Payload"
	case !maps.Equal(got.Headers, want.Headers):
		return "Headers"
	}
	form := func(m Message) string {
		m.Time, m.DeliverAt, m.CreatedAt, m.Payload, m.Headers = time.Time{}, time.Time{}, time.Time{}, nil, nil
		return fmt.Sprintf("%#v", m)
	}
	if form(*got) != form(*want) {
		return "a text or number"
	}
	return ""
}

// nasty holds text that is hard to encode.
var nasty = []string{"", "a", "order/42", "with space", `quo"te`, `back\slash`, "per%cent", "%41", "ünï€😀", "new\nline",
	"tab\t", "\x01\x7f", "\u0085", "\u2028", "\ufffe", "\U0001fffe", "\ufffd", "<a>&b", `{"a":1}`, ",", "=", ";", ":", `"quoted"`, " lead",
	"trail ", "CamelCase", "traceparent", "x"}

// randomMessage returns a valid message with every default filled in and nasty text.
func randomMessage(r *rand.Rand) *Message {
	text := func(atLeast, limit int) string {
		var b strings.Builder
		for n := r.IntN(4); n > 0 || b.Len() < atLeast; n-- {
			if s := nasty[r.IntN(len(nasty))]; b.Len()+len(s) <= limit {
				b.WriteString(s)
			}
		}
		return b.String()
	}
	moment := func() time.Time {
		if r.IntN(4) == 0 {
			return time.Time{}
		}
		return time.Unix(r.Int64N(4e9), r.Int64N(1e9)).In(time.FixedZone("", 60*r.IntN(720)))
	}
	m := &Message{
		ID: text(1, MaxIDBytes), Type: text(1, MaxTypeBytes), Topic: text(1, MaxTopicBytes), Key: text(0, MaxKeyBytes),
		Source:  []string{"orders", "https://shop.example/a?b=c#d", "urn:x:%20"}[r.IntN(3)],
		Subject: text(0, MaxSubjectBytes), Tenant: text(0, MaxTenantBytes), Time: moment(),
		CorrelationID: text(0, MaxCorrelationIDBytes), CausationID: text(0, MaxCausationIDBytes),
		ContentType: []string{"application/json", "application/vnd.a+json; v=1", "text/plain; charset=utf-8", "image/png"}[r.IntN(4)],
		Payload: [][]byte{nil, []byte(`{"a": [1.50, "<b>"]}`), []byte("null"), []byte(`"text"`), []byte("not json"), []byte("1 "),
			{0xff, 0, 1}, []byte(`{"u":"\u0026 &"}`), []byte("\"\xff\""), []byte("\"\u2028\"")}[r.IntN(10)],
	}
	if r.IntN(2) == 0 {
		m.SchemaVersion, m.AggregateVersion, m.Sequence = r.IntN(1<<31), r.Int64(), r.Int64()
		m.CreatedAt = moment()
	}
	for range r.IntN(5) {
		if m.Headers == nil {
			m.Headers = make(map[string]string)
		}
		name := []string{text(1, 32), "data", "id", "sequence", otherHeaders, "tracestate", "dataschema", "X-Y"}[r.IntN(8)]
		m.Headers[name] = text(0, 100)
	}
	return m
}

// random returns a source whose seed is printed when the test fails.
func random(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}
