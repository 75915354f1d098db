package redisbroker

import (
	"bytes"
	"testing"
	"time"

	"github.com/postrider/postrider"
)

// TestPosition lists entries in stream order: offsets increase within an incarnation, and all positions differ.
func TestPosition(t *testing.T) {
	t.Parallel()
	ids := []string{
		"0-1", "1-0", "1-1048575", "1-1048576", "1-2097153", "2-0", "2-1048576", "1795200000000-0", "1795200000000-7", "1795200000001-0",
		"8796093022207-1048575", "8796093022208-0", "1795200000000000-0", "1795200000000000-1048576", "1795200000000001-0",
		"18446744073709551615-18446744073709551615",
	}
	for i, later := range ids {
		for _, id := range ids[:i] {
			incarnationA, a := positionOf("e", id)
			incarnationB, b := positionOf("e", later)
			if incarnationA == incarnationB && a >= b || a < 0 || b < 0 {
				t.Errorf("position of %s is %s %d, that of %s is %s %d", id, incarnationA, a, later, incarnationB, b)
			}
			if compareIDs(id, later) >= 0 || compareIDs(later, id) <= 0 {
				t.Errorf("%s does not stand before %s", id, later)
			}
		}
	}
	for _, id := range []string{"0-1", "1795200000000-1048575", "8796093022207-0"} {
		if incarnation, _ := positionOf("e", id); incarnation != "e" {
			t.Errorf("incarnation of %s is %s, want that of the stream", id, incarnation)
		}
	}
}

func TestBefore(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"5-3": "5-2", "5-0": "4-18446744073709551615", "0-1": "0-0", "0-0": "0-0",
	} {
		if got := before(id); got != want {
			t.Errorf("before(%s) = %s, want %s", id, got, want)
		}
	}
}

// FuzzReadFields checks that any entry is either a message or is returned with its content.
func FuzzReadFields(f *testing.F) {
	f.Add("ce_specversion", "1.0", "ce_id", "1", "data", "{}")
	f.Add("ce_id", "", "data", "", "", "")
	f.Fuzz(func(t *testing.T, a, b, c, d, e, g string) {
		for _, fields := range [][]string{{a, b, c, d, e, g}, {a, b, c}, {"ce_specversion", "1.0", "ce_type", a, "ce_id", b, "ce_source", c, dataField, d}} {
			m, raw, err := readFields(fields)
			if m == nil || (err == nil) != (raw == nil) && len(m.Payload) > 0 {
				t.Errorf("fields %q: message %v, raw %q, error %v", fields, m, raw, err)
			}
		}
	})
}

// FuzzFields checks that reading returns what was written.
func FuzzFields(f *testing.F) {
	f.Add("1", "order/1", "größe", "\r\n\x7f", []byte("data"))
	f.Fuzz(func(t *testing.T, id, key, header, value string, payload []byte) {
		m := &postrider.Message{
			ID: id, Type: "t", Source: "/s", Topic: "t", Key: key, Headers: map[string]string{header: value}, Payload: payload,
		}
		m.FillDefaults("/s", time.Unix(1, 0))
		if m.Validate(postrider.Limits{}) != nil {
			return
		}
		var fields []string
		for _, arg := range appendFields(nil, m) {
			switch v := arg.(type) {
			case string:
				fields = append(fields, v)
			case []byte:
				fields = append(fields, string(v))
			}
		}
		got, _, err := readFields(fields)
		if err != nil || got.ID != m.ID || got.Key != m.Key || got.Headers[header] != value || !bytes.Equal(got.Payload, m.Payload) {
			t.Errorf("message %+v became %+v: %v", m, got, err)
		}
	})
}
