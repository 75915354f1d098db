package postrider

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestUnreadableEventsKeepWhatCanBeRead: attributes that are valid, all other headers, and the payload.
func TestUnreadableEventsKeepWhatCanBeRead(t *testing.T) {
	t.Parallel()
	event := func(more map[string]string) map[string]string {
		out := map[string]string{"ce-specversion": "1.0", "ce-id": "1", "ce-source": "s", "ce-type": "t", "ce-partitionkey": "k", "ce-priority": "low"}
		maps.Copy(out, more)
		return out
	}
	read := func(headers map[string]string) *Message {
		return &Message{ID: "1", Source: "s", Type: "t", Topic: "t", Key: "k", Headers: headers, Payload: []byte("{")}
	}
	for name, c := range map[string]struct {
		headers map[string]string
		want    *Message
	}{
		"a time that is none": {
			event(map[string]string{"ce-time": "yesterday", "X-Request": "7", "content-type": "a/b"}),
			func() *Message {
				m := read(map[string]string{"priority": "low", "ce-time": "yesterday", "X-Request": "7"})
				m.ContentType = "a/b"
				return m
			}(),
		},
		"a year that no database holds": {
			event(map[string]string{"ce-time": "+12026-01-01T00:00:00Z"}),
			read(map[string]string{"priority": "low", "ce-time": "+12026-01-01T00:00:00Z"}),
		},
		"another version": {
			event(map[string]string{"ce-specversion": "0.3"}),
			read(map[string]string{"priority": "low", "ce-specversion": "0.3"}),
		},
		"a name that is none": {
			event(map[string]string{"ce-a_b": "c"}),
			read(map[string]string{"priority": "low", "ce-a_b": "c"}),
		},
		"no event": {
			map[string]string{"Key": "v", "traceparent": "00-1"},
			&Message{Headers: map[string]string{"Key": "v", "traceparent": "00-1"}, Payload: []byte("{")},
		},
		"a whole event that is broken": {
			map[string]string{"content-type": CloudEventsJSON + "; charset=utf-8", "ce-id": "2", "Key": "v"},
			&Message{ContentType: CloudEventsJSON + "; charset=utf-8", Headers: map[string]string{"ce-id": "2", "Key": "v"}, Payload: []byte("{")},
		},
	} {
		got, err := httpMode.Decode(maps.All(c.headers), []byte("{"))
		if err == nil {
			t.Errorf("%s: no error", name)
		}
		requireEqual(t, got, c.want)
	}

	text := []byte(`{"specversion":"1.0","id":"1","source":"s","type":"t","partitionkey":"k","time":"yesterday","priority":"low","data":{},"n":[1]}`)
	got, err := DecodeCloudEvent(text)
	if err == nil || !strings.Contains(err.Error(), "attribute time") || !strings.Contains(err.Error(), "attribute n is a JSON object or array") {
		t.Errorf("error %v, want all that is wrong", err)
	}
	want := read(map[string]string{"priority": "low"})
	want.ContentType, want.Payload = CloudEventsJSON, text
	requireEqual(t, got, want)
}

func TestRepeatedHeadersOfUnreadableEventsAreJoined(t *testing.T) {
	t.Parallel()
	pairs := [][2]string{{"ce_id", "1"}, {"a", "x"}, {"ce_id", "2"}, {"a", "y"}}
	m, err := kafkaMode.Decode(func(yield func(string, string) bool) {
		for _, p := range pairs {
			if !yield(p[0], p[1]) {
				return
			}
		}
	}, nil)
	if err == nil || m.ID != "1" || !maps.Equal(m.Headers, map[string]string{"a": "x, y", "ce_id": "1, 2"}) {
		t.Errorf("got %+v, %v", m, err)
	}
}

// requireKept: every line of an unreadable event's head is in the message.
func requireKept(t *testing.T, mode CloudEventsBinary, m *Message, head string, payload []byte) {
	t.Helper()
	if !bytes.Equal(m.Payload, payload) {
		t.Fatalf("payload %q came as %q", payload, m.Payload)
	}
	texts := []string{m.ID, m.Source, m.Type, m.Subject, m.Key, m.Topic, m.Tenant, m.CorrelationID, m.CausationID, m.ContentType}
	for _, v := range m.Headers {
		texts = append(texts, v)
	}
	for line := range strings.Lines(head) {
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		if !ok {
			continue
		}
		decoded := value
		if !mode.UTF8 {
			decoded = percentDecode(unquote(value))
		}
		attribute := strings.TrimPrefix(strings.ToLower(name), mode.prefix())
		switch attribute {
		case "specversion", "time", "recordedtime", "sequence", "schemaversion", "aggregateversion", otherHeaders, otherContentType, "datacontenttype", contentTypeHeader:
			continue // not texts of the message, if they were read
		}
		if !slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(s, value) || strings.Contains(s, decoded) }) {
			t.Fatalf("header %q: %q is lost in %+v", name, value, m)
		}
	}
}

// TestDeepPayloadsSurviveJSON: encoding/json reads nothing that is nested deeper than 10,000.
func TestDeepPayloadsSurviveJSON(t *testing.T) {
	t.Parallel()
	for _, depth := range []int{1, maxNesting, maxNesting + 1, 9_998, 9_999, 10_000, 20_000} {
		for _, payload := range []string{
			strings.Repeat("[", depth) + strings.Repeat("]", depth),
			strings.Repeat(`{"[\"[":`, depth) + `"[[\\"` + strings.Repeat("}", depth),
		} {
			m := &Message{ID: "1", Type: "t", Topic: "t", Source: "s", ContentType: "application/json", Time: time.Unix(0, 0).UTC(), Payload: []byte(payload)}
			text, err := m.MarshalJSON()
			if err != nil {
				t.Fatalf("depth %d: %v", depth, err)
			}
			var got Message
			if err := got.UnmarshalJSON(text); err != nil {
				t.Fatalf("depth %d: %v", depth, err)
			}
			requireEqual(t, &got, m)
			event, err := DecodeCloudEvent(EncodeCloudEvent(m))
			if err != nil {
				t.Fatalf("depth %d: %v", depth, err)
			}
			requireEqual(t, event, m)
		}
	}
}
