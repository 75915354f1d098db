package stored_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/stored"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 123_456_000, time.UTC)

// scan copies values to Row's destinations, as database/sql does for values of the right type.
func scan(t testing.TB, row *stored.Row, values []any) {
	t.Helper()
	if len(values) != stored.Columns || len(row.Dest()) != stored.Columns {
		t.Fatalf("%d values and %d destinations, want %d of both", len(values), len(row.Dest()), stored.Columns)
	}
	for i, dest := range row.Dest() {
		d, v := reflect.ValueOf(dest).Elem(), reflect.ValueOf(values[i])
		d.Set(v.Convert(d.Type()))
	}
}

func TestMessageSurvives(t *testing.T) {
	t.Parallel()
	in := &postrider.Message{
		ID: "id", Type: "type", Source: "source", Topic: "topic", Key: "key", Subject: "subject", Tenant: "tenant",
		Time: now.Add(-time.Hour), SchemaVersion: 2, AggregateVersion: 3, ContentType: "text/plain",
		Headers: map[string]string{"a": "ö\"", "b": ""}, CorrelationID: "corr", CausationID: "cause", Payload: []byte{0, 255},
		DeliverAfter: time.Minute,
	}
	values, err := stored.Append(nil, in, now.UnixMicro())
	if err != nil {
		t.Fatal(err)
	}
	row := stored.NewRow()
	scan(t, row, values)
	got, err := row.Message(42)
	if err != nil {
		t.Fatal(err)
	}
	want := *in
	want.Sequence, want.CreatedAt, want.DeliverAfter, want.DeliverAt = 42, now, 0, now.Add(time.Minute)
	if !reflect.DeepEqual(got, &want) {
		t.Errorf("got  %+v\nwant %+v", got, &want)
	}
}

func TestRowsShareNothing(t *testing.T) {
	t.Parallel()
	row := stored.NewRow()
	var got []*postrider.Message
	for _, text := range []string{"one", "two"} {
		values, err := stored.Append(nil, &postrider.Message{Payload: []byte(text), Headers: map[string]string{"h": text}}, 1)
		if err != nil {
			t.Fatal(err)
		}
		scan(t, row, values)
		m, err := row.Message(1)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, m)
	}
	for i, text := range []string{"one", "two"} {
		if string(got[i].Payload) != text || got[i].Headers["h"] != text || !got[i].DeliverAt.IsZero() {
			t.Errorf("message %d is %+v, want %s", i, got[i], text)
		}
	}
}

func TestCauseIsCutAtACharacter(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "short", strings.Repeat("x", 4000), strings.Repeat("x", 4001), "x" + strings.Repeat("😀", 2000), strings.Repeat("\x80", 5000)} {
		got := stored.Cause(text)
		if len(got) > stored.MaxCause || !strings.HasPrefix(text, got) || len(got) < min(len(text), stored.MaxCause-utf8.UTFMax) {
			t.Errorf("%d bytes were cut to %d", len(text), len(got))
		}
		if utf8.ValidString(text) && !utf8.ValidString(got) {
			t.Errorf("%.10q… was cut inside a character", text)
		}
	}
}

func TestHistorySurvives(t *testing.T) {
	t.Parallel()
	entry, err := stored.Entry(3, now.UnixMicro(), "broken \"pipe\"")
	if err != nil {
		t.Fatal(err)
	}
	got, err := stored.History("[" + entry + "]")
	want := postrider.AttemptInfo{Attempt: 3, At: now, Cause: "broken \"pipe\""}
	if err != nil || len(got) != 1 || got[0] != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

// FuzzHeaders: for any content of the column, the rest of the message is returned, and invalid JSON is an error.
func FuzzHeaders(f *testing.F) {
	for _, text := range []string{"{}", `{"a":"b"}`, `{"a":1}`, "", "null", "[]", `{"a":`, `{"a":"b","a":"c"}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		values, err := stored.Append(nil, &postrider.Message{ID: "id", Key: "key"}, 1)
		if err != nil {
			t.Fatal(err)
		}
		values[11] = text
		row := stored.NewRow()
		scan(t, row, values)
		m, err := row.Message(7)
		if m == nil || m.Key != "key" || m.Sequence != 7 {
			t.Fatalf("got %+v, %v", m, err)
		}
		var want map[string]string
		if bad := json.Unmarshal([]byte(text), &want); (bad == nil) != (err == nil) || err == nil && !maps.Equal(m.Headers, want) {
			t.Errorf("%q: got %v, %v; want %v, %v", text, m.Headers, err, want, bad)
		}
	})
}
