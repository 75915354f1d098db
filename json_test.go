package postrider

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestMessageJSONRoundTrip(t *testing.T) {
	t.Parallel()
	r := random(t)
	for range 1000 {
		m := randomMessage(r)
		switch r.IntN(3) {
		case 0:
			m.DeliverAt = time.Unix(r.Int64N(4e9), r.Int64N(1e9))
		case 1:
			m.DeliverAfter = time.Duration(r.Int64())
		}
		m.Attempt = r.IntN(3)
		// The three ways to write a message: alone, embedded, and indented.
		plain, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		laidOut, err := json.MarshalIndent(*m, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		var unescaped bytes.Buffer
		e := json.NewEncoder(&unescaped)
		e.SetEscapeHTML(false)
		if err := e.Encode(struct{ M *Message }{m}); err != nil {
			t.Fatal(err)
		}
		inner := bytes.TrimSuffix(bytes.TrimPrefix(bytes.TrimSpace(unescaped.Bytes()), []byte(`{"M":`)), []byte("}"))
		for _, text := range [][]byte{plain, laidOut, inner} {
			var got Message
			if err := json.Unmarshal(text, &got); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			requireEqual(t, &got, m)
		}
	}
}

func TestMessageJSONForm(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 16, 0, 0, 5000, time.UTC)
	for name, c := range map[string]struct {
		m    Message
		want string
	}{
		"all fields": {
			Message{ID: "1", Type: "order.placed", Source: "orders", Topic: "o", Key: "order/42", Subject: "s", Tenant: "t",
				Time: at, SchemaVersion: 1, AggregateVersion: 7, ContentType: "application/json",
				Headers: map[string]string{"a": "b"}, CorrelationID: "c", CausationID: "d", Payload: []byte(`{"n":1.50}`),
				DeliverAt: at, DeliverAfter: 90 * time.Second, Sequence: 3, Attempt: 2, CreatedAt: at},
			`{"id":"1","type":"order.placed","source":"orders","topic":"o","key":"order/42","subject":"s","tenant":"t",` +
				`"time":"2026-11-20T16:00:00.000005Z","schema_version":1,"aggregate_version":7,"content_type":"application/json",` +
				`"headers":{"a":"b"},"correlation_id":"c","causation_id":"d","deliver_at":"2026-11-20T16:00:00.000005Z",` +
				`"sequence":3,"attempt":2,"created_at":"2026-11-20T16:00:00.000005Z","deliver_after":"1m30s","payload":{"n":1.50}}`,
		},
		"nothing":         {Message{}, `{}`},
		"JSON null":       {Message{Payload: []byte("null")}, `{"payload":null}`},
		"other JSON type": {Message{ContentType: "application/a+json", Payload: []byte("[]")}, `{"content_type":"application/a+json","payload":[]}`},
		"text":            {Message{ContentType: "text/plain", Payload: []byte("a\nb")}, `{"content_type":"text/plain","payload":"a\nb"}`},
		"binary":          {Message{ContentType: "image/png", Payload: []byte{1, 2}}, `{"content_type":"image/png","payload_base64":"AQI="}`},
		"not JSON":        {Message{Payload: []byte("{")}, `{"payload_base64":"ew=="}`},
		"white space":     {Message{Payload: []byte("[1, 2]")}, `{"payload":[1,2],"payload_base64":"WzEsIDJd"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := json.Marshal(c.m)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != c.want {
				t.Errorf(" got %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestMessageJSONWrittenByHand(t *testing.T) {
	t.Parallel()
	var m Message
	err := json.Unmarshal([]byte(`{"type": "order.placed", "payload": {"id": 42, "items": [ ]}}`), &m)
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, &m, &Message{Type: "order.placed", Payload: []byte(`{"id":42,"items":[]}`)})

	if err := json.Unmarshal([]byte(`{"id":"other"}`), &m); err != nil {
		t.Fatal(err)
	}
	requireEqual(t, &m, &Message{ID: "other"}) // nothing is left of the old value
	if err := json.Unmarshal([]byte(`null`), &m); err != nil {
		t.Fatal(err)
	}
	requireEqual(t, &m, &Message{ID: "other"})
}

func TestMessageJSONErrorsNameTheFault(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"tpye":"x"}`:                              `unknown field "tpye"`,
		`{"headers":{"a":1}}`:                       `headers`,
		`{"deliver_after":"soon"}`:                  `deliver_after: time: invalid duration "soon"`,
		`{"payload":1,"payload_base64":"Mg=="}`:     `payload and payload_base64 differ: give one of them`,
		`{"content_type":"text/plain","payload":1}`: `payload of content type "text/plain" must be a string, or base64 in payload_base64`,
		`{"content_type":"image/png","payload":"a","payload_base64":"AA=="}`: `payload and payload_base64 are both given for content type "image/png": give one of them`,
		`{"payload_base64":"%"}`: `illegal base64 data`,
		`[]`:                     `read message: `,
	} {
		var m Message
		if err := json.Unmarshal([]byte(text), &m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want …%s…", text, err, want)
		}
	}
}

func FuzzMessageUnmarshalJSON(f *testing.F) {
	for _, s := range []string{`{"type":"a","payload":{"b": 1}}`, `{"payload_base64":"AQI=","payload":null}`,
		`{"content_type":"text/plain","payload":"a\u2028"}`, `{"deliver_after":"1h","headers":{"":"\ud800"}}`, `{"time":"2026-01-02T03:04:05+01:00"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var m, again Message
		if json.Unmarshal(data, &m) != nil {
			return
		}
		text, err := json.Marshal(&m)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatalf("what was written cannot be read: %v\n%s", err, text)
		}
		requireEqual(t, &again, &m)
	})
}

func BenchmarkMessageMarshalJSON(b *testing.B) {
	m := benchmarkMessage()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := json.Marshal(m); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMessageUnmarshalJSON(b *testing.B) {
	text, err := json.Marshal(benchmarkMessage())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		var m Message
		if err := json.Unmarshal(text, &m); err != nil {
			b.Fatal(err)
		}
	}
}

// benchmarkMessage has 500 bytes of JSON as payload and the usual attributes.
func benchmarkMessage() *Message {
	m := &Message{Type: "order.placed", Key: "order/42", Topic: "orders", SchemaVersion: 1, Sequence: 4711, CreatedAt: time.Now(),
		CorrelationID: NewID(), CausationID: NewID(), Headers: map[string]string{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
		Payload: []byte(`{"order":"42","note":"` + strings.Repeat("x", 476) + `"}`)}
	m.FillDefaults("orders", time.Now())
	return m
}
