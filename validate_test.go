package postrider

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"
)

func valid() *Message {
	return &Message{ID: "1", Type: "order.placed", Source: "orders", Topic: "orders", ContentType: "application/json"}
}

// size: a table of cases and the loop that runs them.
func TestValidateEachRule(t *testing.T) {
	t.Parallel()
	long := func(n int) string { return strings.Repeat("x", n) }
	manyHeaders := make(map[string]string)
	for i := range MaxHeaders {
		manyHeaders[fmt.Sprint(i)] = ""
	}
	tooManyHeaders := map[string]string{"another": ""}
	maps.Copy(tooManyHeaders, manyHeaders)
	for name, c := range map[string]struct {
		change func(*Message)
		want   string // "" for a valid message
	}{
		"nothing wrong":           {func(m *Message) {}, ""},
		"id empty":                {func(m *Message) { m.ID = "" }, "id is required"},
		"id longest":              {func(m *Message) { m.ID = long(64) }, ""},
		"id too long":             {func(m *Message) { m.ID = long(65) }, "id is 65 bytes long, the limit is 64"},
		"type empty":              {func(m *Message) { m.Type = "" }, "type is required"},
		"type longest":            {func(m *Message) { m.Type = long(128) }, ""},
		"type too long":           {func(m *Message) { m.Type = long(129) }, "type is 129 bytes long, the limit is 128"},
		"source empty":            {func(m *Message) { m.Source = "" }, "source is required"},
		"source longest":          {func(m *Message) { m.Source = long(256) }, ""},
		"source too long":         {func(m *Message) { m.Source = long(257) }, "source is 257 bytes long, the limit is 256"},
		"source no URI":           {func(m *Message) { m.Source = "my service" }, "source is not a URI-reference (RFC 3986) from byte 2 on"},
		"topic empty":             {func(m *Message) { m.Topic = "" }, "topic is required"},
		"topic longest":           {func(m *Message) { m.Topic = long(249) }, ""},
		"topic too long":          {func(m *Message) { m.Topic = long(250) }, "topic is 250 bytes long, the limit is 249"},
		"key longest":             {func(m *Message) { m.Key = long(256) }, ""},
		"key too long":            {func(m *Message) { m.Key = long(257) }, "key is 257 bytes long, the limit is 256"},
		"key counts bytes":        {func(m *Message) { m.Key = strings.Repeat("ü", 129) }, "key is 258 bytes long, the limit is 256"},
		"key not UTF-8":           {func(m *Message) { m.Key = "a\xff" }, "key is not UTF-8"},
		"key with NUL":            {func(m *Message) { m.Key = "a\x00" }, "key has a NUL byte"},
		"subject too long":        {func(m *Message) { m.Subject = long(257) }, "subject is 257 bytes long, the limit is 256"},
		"tenant longest":          {func(m *Message) { m.Tenant = long(64) }, ""},
		"tenant too long":         {func(m *Message) { m.Tenant = long(65) }, "tenant is 65 bytes long, the limit is 64"},
		"time year 10000":         {func(m *Message) { m.Time = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }, "time is in the year 10000, it must be from 1 to 9999"},
		"schema version negative": {func(m *Message) { m.SchemaVersion = -1 }, "schema_version is -1, it counts from 1, the limit is 2147483647"},
		"schema version too high": {func(m *Message) { m.SchemaVersion = math.MaxInt32 + 1 }, "schema_version is 2147483648, it counts from 1, the limit is 2147483647"},
		"aggregate version":       {func(m *Message) { m.AggregateVersion = -1 }, "aggregate_version is -1, it counts from 1"},
		"aggregate version max":   {func(m *Message) { m.AggregateVersion = math.MaxInt64 }, ""},
		"content type empty":      {func(m *Message) { m.ContentType = "" }, "content_type is required"},
		"content type no media":   {func(m *Message) { m.ContentType = "json" }, "content_type is not a media type such as application/json"},
		"content type parameters": {func(m *Message) { m.ContentType = "text/plain; charset=utf-8" }, ""},
		"content type too long":   {func(m *Message) { m.ContentType = "a/" + long(127) }, "content_type is 129 bytes long, the limit is 128"},
		"headers at the limit":    {func(m *Message) { m.Headers = manyHeaders }, ""},
		"headers too many":        {func(m *Message) { m.Headers = tooManyHeaders }, "headers has 65 entries, the limit is 64"},
		"headers largest":         {func(m *Message) { m.Headers = map[string]string{"a": long(MaxHeaderBytes - 1)} }, ""},
		"headers too large":       {func(m *Message) { m.Headers = map[string]string{"a": long(MaxHeaderBytes)} }, "headers has 16385 bytes of names and values, the limit is 16384"},
		"header name empty":       {func(m *Message) { m.Headers = map[string]string{"": "x"} }, "headers has an empty name"},
		"header name not UTF-8":   {func(m *Message) { m.Headers = map[string]string{"a\xff": ""} }, `headers: name "a\xff" is not UTF-8`},
		"header value with NUL":   {func(m *Message) { m.Headers = map[string]string{"a": "\x00"} }, `headers["a"] has a NUL byte`},
		"correlation id too long": {func(m *Message) { m.CorrelationID = long(129) }, "correlation_id is 129 bytes long, the limit is 128"},
		"causation id too long":   {func(m *Message) { m.CausationID = long(129) }, "causation_id is 129 bytes long, the limit is 128"},
		"payload largest":         {func(m *Message) { m.Payload = make([]byte, 1<<20) }, ""},
		"payload too large":       {func(m *Message) { m.Payload = make([]byte, 1<<20+1) }, "payload is 1048577 bytes long, the limit is 1048576"},
		"deliver at":              {func(m *Message) { m.DeliverAt = time.Unix(1, 0) }, ""},
		"deliver after":           {func(m *Message) { m.DeliverAfter = time.Second }, ""},
		"deliver after negative":  {func(m *Message) { m.DeliverAfter = -time.Second }, "deliver_after is -1s, it must be positive"},
		"deliver at and after":    {func(m *Message) { m.DeliverAt, m.DeliverAfter = time.Unix(1, 0), 1 }, "deliver_at and deliver_after are both set: give at most one of them"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := valid()
			c.change(m)
			err := m.Validate(Limits{})
			if c.want == "" {
				if err != nil {
					t.Fatalf("a valid message is refused: %v", err)
				}
				return
			}
			if err == nil || err.Error() != "message: "+c.want {
				t.Fatalf("got %v, want message: %s", err, c.want)
			}
		})
	}
}

func TestValidateReportsEveryFaultAtOnce(t *testing.T) {
	t.Parallel()
	m := &Message{ID: "1", Source: "orders", Topic: "t", ContentType: "text/plain", Key: strings.Repeat("x", 300), DeliverAfter: -1,
		Headers: map[string]string{"b": "\xff", "a": "\x00"}}
	invalid, ok := errors.AsType[*ValidationError](m.Validate(Limits{MaxPayload: 10}))
	if !ok {
		t.Fatal("want a *ValidationError")
	}
	want := []Fault{
		{Field: "type", Problem: "is required"},
		{Field: "key", Problem: "is 300 bytes long", Limit: 256},
		{Field: `headers["a"]`, Problem: "has a NUL byte"},
		{Field: `headers["b"]`, Problem: "is not UTF-8"},
		{Field: "deliver_after", Problem: "is -1ns, it must be positive"},
	}
	if len(invalid.Faults) != len(want) {
		t.Fatalf("got %d faults, want %d:\n%v", len(invalid.Faults), len(want), invalid)
	}
	for i, f := range invalid.Faults {
		if f != want[i] {
			t.Errorf("fault %d: got %+v, want %+v", i, f, want[i])
		}
	}
}

func TestValidateLimitOfPayload(t *testing.T) {
	t.Parallel()
	m := valid()
	m.Payload = make([]byte, 11)
	if err := m.Validate(Limits{MaxPayload: 11}); err != nil {
		t.Error(err)
	}
	if err := m.Validate(Limits{MaxPayload: 10}); err == nil {
		t.Error("11 bytes pass a limit of 10")
	}
}

func TestValidationErrorTextIsBounded(t *testing.T) {
	t.Parallel()
	e := &ValidationError{Batch: 1000}
	for i := range 1000 {
		e.Faults = append(e.Faults, Fault{Index: i, Field: "type", Problem: "is required"})
	}
	lines := strings.Split(e.Error(), "\n")
	if len(lines) != 21 || lines[3] != "message 3: type is required" || lines[20] != "… and 980 more faults" {
		t.Errorf("got %d lines:\n%s", len(lines), e)
	}
}

func TestValidateSurvivesNil(t *testing.T) {
	t.Parallel()
	var m *Message
	if err := m.Validate(Limits{}); err == nil || err.Error() != "message: is nil" {
		t.Errorf("got %v", err)
	}
}

func TestURIReference(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"orders", "/cloudevents/spec/pull/123", "https://user@shop.example:8080/a;b?c=d&e=%20#f", "1-555-123-4567",
		"urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66", "mailto:a@b.example", "a/b:c", "?q=a:b", "http://[::1]/", "//host/path"} {
		if i := notURIReference(s); i >= 0 {
			t.Errorf("%q is refused from byte %d on", s, i)
		}
	}
	for s, want := range map[string]int{"my service": 2, "a%2": 1, "a%zz": 1, "ä": 0, "a#b#c": 3, "1:2": 0, ":a": 0, "a\n": 1, `a"b`: 1, "<a>": 0} {
		if i := notURIReference(s); i != want {
			t.Errorf("%q: got byte %d, want %d", s, i, want)
		}
	}
}

func BenchmarkPrepareMessage(b *testing.B) {
	now := time.Now()
	payload := make([]byte, 500)
	b.ReportAllocs()
	for b.Loop() {
		m := Message{Type: "order.placed", Key: "order/42", Payload: payload}
		m.FillDefaults("orders", now)
		if err := m.Validate(Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}
