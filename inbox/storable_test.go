package inbox

import (
	"maps"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/stored"
)

// FuzzStorable: every message gets a form that every database can store, from which it can be restored.
func FuzzStorable(f *testing.F) {
	f.Add("id", "key", "name", "value", int64(0), int64(0), 1)
	f.Add("\x00\xff", "k", OriginalHeader, `{"id":"\"x\""}`, int64(253402300800), int64(1), 1<<40)
	f.Add("id", "k", "time", "1.5", int64(-62135596801), int64(999_999_999), -1<<40)
	f.Fuzz(func(t *testing.T, id, key, name, value string, seconds, nanoseconds int64, version int) {
		m := &postrider.Message{
			ID: id, Key: key, Type: "t", Source: "s", Topic: "t", ContentType: "a/b", Headers: map[string]string{name: value},
			Time: time.Unix(seconds%1e15, nanoseconds%1e9), SchemaVersion: version,
		}
		s := storable(m)
		if err := stored.Check(s); err != nil {
			t.Fatalf("%+v breaks the rules: %v", s, err)
		}
		if _, err := s.MarshalJSON(); err != nil {
			t.Fatalf("%+v has no JSON form: %v", s, err)
		}
		got := restored(s)
		if got.ID != m.ID || got.Key != m.Key || !got.Time.Equal(m.Time) || got.SchemaVersion != m.SchemaVersion || !maps.Equal(got.Headers, m.Headers) {
			t.Fatalf("%+v was restored as %+v", m, got)
		}
		if in := standInFor(s); stored.Check(in) != nil || in.ID != s.ID || in.Key != s.Key || len(in.Headers)+len(in.Payload) != 0 {
			t.Fatalf("the stand-in is %+v", in)
		}
	})
}
