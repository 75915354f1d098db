package postrider

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var addGolden = flag.Bool("add-golden", false, "write golden files that are missing; none is ever overwritten")

func goldenMessages() map[string]*Message {
	at := time.Date(2026, 11, 20, 16, 0, 0, 123_456_000, time.UTC)
	return map[string]*Message{
		"least": {ID: "1", Type: "order.placed", Source: "orders", Topic: "order.placed", ContentType: "application/json"},
		"all": {ID: "0199f3a4-7e1c-7a52-9b61-3f0c2d1e4b5a", Type: "order.placed", Source: "https://shop.example/orders", Topic: "orders",
			Key: "order/42", Subject: "größe 50%", Tenant: "acme", Time: at, SchemaVersion: 2, AggregateVersion: 1 << 40,
			ContentType: "application/json", CorrelationID: "c-1", CausationID: "e-0", Payload: []byte(`{"order": 42}`),
			Headers: map[string]string{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "region": "eu",
				"X-Request-ID": "r\n1", "id": "not the event's"},
			Sequence: 4711, CreatedAt: at.Add(time.Millisecond)},
		"binary": {ID: "2", Type: "picture.taken", Source: "cameras", Topic: "picture.taken", ContentType: "image/png", Payload: []byte{0x89, 'P', 'N', 'G'}},
	}
}

// Receivers rely on the wire format: golden files are added, never changed.
func TestCloudEventsGolden(t *testing.T) {
	t.Parallel()
	for name, m := range goldenMessages() {
		forms := map[string][]byte{".json": EncodeCloudEvent(m), ".http": binaryForm(httpMode, m), ".kafka": binaryForm(kafkaMode, m)}
		for ending, got := range forms {
			path := filepath.Join("testdata", "cloudevents", name+ending)
			want, err := os.ReadFile(path)
			if os.IsNotExist(err) && *addGolden {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
				want, err = got, nil
			}
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s has changed:\n got %s\nwant %s", path, got, want)
			}
			if back := readForm(t, ending, want); difference(back, m) != "" {
				t.Errorf("%s is read as %+v", path, back)
			}
		}
	}
}

// binaryForm writes headers, an empty line and the payload.
func binaryForm(mode CloudEventsBinary, m *Message) []byte {
	var b bytes.Buffer
	for name, value := range mode.Headers(m) {
		fmt.Fprintf(&b, "%s: %s\n", name, value)
	}
	b.WriteByte('\n')
	b.Write(m.Payload)
	return b.Bytes()
}

func readForm(t *testing.T, ending string, form []byte) *Message {
	t.Helper()
	if ending == ".json" {
		m, err := DecodeCloudEvent(form)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	head, payload, _ := bytes.Cut(form, []byte("\n\n"))
	headers := make(map[string]string)
	for line := range strings.Lines(string(head)) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		headers[name] = value
	}
	mode := map[string]CloudEventsBinary{".http": httpMode, ".kafka": kafkaMode}[ending]
	m, err := mode.Decode(maps.All(headers), payload)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
