//go:build !race

package postgres_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// all fetches everything from the beginning, in order of sequence.
func (b *bundle) all(t testing.TB) []store.Entry {
	t.Helper()
	req := store.FetchRequest{Limit: 1000, MaxBytes: 64 << 20}
	for _, l := range b.leaseAll(t, "r") {
		req.Partitions = append(req.Partitions, store.FetchPartition{LeaseRef: l.Ref()})
	}
	batches, err := b.Fetch(t.Context(), "r", req)
	if err != nil {
		t.Fatal(err)
	}
	var out []store.Entry
	for _, batch := range batches {
		out = append(out, batch.Entries...)
	}
	slices.SortFunc(out, func(a, b store.Entry) int { return int(a.Message.Sequence - b.Message.Sequence) })
	return out
}

// oddMessages returns messages that are hard to encode as text.
func oddMessages() []*postrider.Message {
	var msgs []*postrider.Message
	for i, s := range []string{"plain", `q"uo'te`, `back\slash`, "br{a}ce,s", "NULL", "", "ünï😀", " space ", "$1 ? %s"} {
		msgs = append(msgs, &postrider.Message{
			ID: fmt.Sprintf("%d-%s", i, s), Type: "t" + s, Topic: "o" + s, Key: s, Source: "x", Subject: s, Tenant: s, ContentType: "a/b",
			Time: time.Date(1+i*1000, 2, 3, 4, 5, 6, 789_000, time.UTC), SchemaVersion: i, AggregateVersion: int64(i) << 40,
			Headers: map[string]string{"h" + s: s}, CorrelationID: s, CausationID: s, Payload: []byte(s + "\x00\xff\\"),
		})
	}
	return msgs
}

// TestDatabaseSQL publishes through database/sql, with all supported drivers.
func TestDatabaseSQL(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"pgx", "postgres"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			b := setup(t, postgres.Config{})
			dsn := dsn(t)
			if driver == "postgres" { // lib/pq asks for TLS unless told otherwise
				dsn = withParam(t, dsn, "sslmode", "disable")
			}
			db, err := sql.Open(driver, dsn)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			s, ctx := b.SQL(db), t.Context()
			msgs := oddMessages()
			var ids []string
			for _, m := range msgs {
				ids = append(ids, m.ID)
			}
			tx, err := s.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Insert(ctx, tx, msgs); err != nil {
				t.Fatal(err)
			}
			written, err := s.Written(ctx, tx, append(ids, "another"))
			if err != nil || !slices.Equal(written, ids) {
				t.Fatalf("written: %q, %v, want %q", written, err, ids)
			}
			if err := s.Commit(ctx, tx); err != nil {
				t.Fatal(err)
			}
			if err := s.Rollback(ctx, tx); err != nil {
				t.Errorf("rollback after commit: %v", err)
			}
			if err := s.Insert(ctx, tx, msgs[:1]); !errors.Is(err, store.ErrNoTransaction) {
				t.Errorf("insert after commit: %v", err)
			}
			got := b.all(t)
			if len(got) != len(msgs) {
				t.Fatalf("%d messages of %d", len(got), len(msgs))
			}
			for i, r := range got {
				m := *r.Message
				m.Sequence, m.CreatedAt = 0, time.Time{}
				if a, b := fmt.Sprintf("%+v", m), fmt.Sprintf("%+v", *msgs[i]); a != b || r.Err != nil {
					t.Errorf("%v: got\n%s, want\n%s", r.Err, a, b)
				}
			}
		})
	}
}

func TestPublishFunctionChoosesTheSamePartition(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{Partitions: 7})
	random := rand.New(rand.NewPCG(1, 2))
	var keys []string
	for range 300 {
		key := make([]rune, random.IntN(20))
		for i := range key {
			key[i] = rune(1 + random.IntN(0xd7ff)) // any character except surrogates and NUL
		}
		keys = append(keys, string(key))
	}
	b.exec(t, "select "+b.table("publish")+"('t', k, 'x', '{}'::text) from unnest($1::text[]) as k", keys)
	rows, err := b.pool.Query(t.Context(), "select key, id, partition::int4 from "+b.table("log"))
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		var key, id string
		var partition int
		if err := rows.Scan(&key, &id, &partition); err != nil {
			t.Fatal(err)
		}
		if want := postrider.PartitionOf(key, id, 7); partition != want {
			t.Errorf("key %q, id %s: partition %d, want %d", key, id, partition, want)
		}
		if len(id) != 36 || id[14] != '7' || !strings.ContainsRune("89ab", rune(id[19])) {
			t.Errorf("id %s is not a UUIDv7", id)
		}
	}
	if err := rows.Err(); err != nil || n != len(keys) {
		t.Fatalf("%d rows, %v", n, err)
	}
}

func TestPublishFunctionTakesEveryField(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	p := b.table("publish")
	id := one[string](t, b.pool, "select "+p+`('orders', 'order/1', 'order.placed', '\xff00'::bytea, headers => '{"a": "b"}', id => 'my-id',
		source => '/shop', subject => 's', tenant => 'acme', correlation_id => 'co', causation_id => 'ca', content_type => 'x/y',
		deliver_after => '1 hour', schema_version => 2, aggregate_version => 3, message_time => '2026-01-02 03:04:05Z')`)
	b.exec(t, "select "+p+`('', null, 'order.shipped', '{"b": 1}'::jsonb)`)
	b.exec(t, "select "+p+`('orders', 'order/1', 'order.paid', 'plain text', content_type => 'text/plain')`)
	b.exec(t, "select "+p+`('orders', 'order/1', 'order.sent', '{"a":  [1, 1]}'::json)`)
	got := b.all(t)
	if id != "my-id" || len(got) != 4 {
		t.Fatalf("id %q, %d messages", id, len(got))
	}
	m := *got[0].Message
	if got[0].Delay < 59*time.Minute || got[0].Delay > time.Hour {
		t.Errorf("delay %s, want an hour", got[0].Delay)
	}
	m.Sequence, m.CreatedAt, m.DeliverAt = 0, time.Time{}, time.Time{}
	want := postrider.Message{ID: "my-id", Topic: "orders", Key: "order/1", Type: "order.placed", Source: "/shop", Subject: "s",
		Tenant: "acme", Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), SchemaVersion: 2, AggregateVersion: 3, ContentType: "x/y",
		Headers: map[string]string{"a": "b"}, CorrelationID: "co", CausationID: "ca", Payload: []byte{0xff, 0}}
	if a, b := fmt.Sprintf("%+v", m), fmt.Sprintf("%+v", want); a != b {
		t.Errorf("got\n%s, want\n%s", a, b)
	}
	if m := got[1].Message; m.Topic != "order.shipped" || m.Key != "" || !json.Valid(m.Payload) || m.ContentType != "application/json" {
		t.Errorf("with defaults: %+v", m)
	}
	if !bytes.Equal(got[2].Message.Payload, []byte("plain text")) {
		t.Errorf("payload %q", got[2].Message.Payload)
	}
	if m := got[3].Message; string(m.Payload) != `{"a":  [1, 1]}` || m.ContentType != "application/json" {
		t.Errorf("of type json: %+v", m)
	}
}

// TestPublishFunctionTakesNoTextForJSON: a text is JSON if its content type says so, at any depth that the server reads.
func TestPublishFunctionTakesNoTextForJSON(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	publish := "select " + b.table("publish") + "('t', 'k', $3::text, $1::text, content_type => $2::text)"
	deep := strings.Repeat("[", 1_000) + strings.Repeat("]", 1_000)
	for _, test := range []struct {
		payload, contentType string
		accepted             bool
	}{
		{`{"a": 1}`, "application/json", true}, {`"text"`, "application/json", true}, {`{"a": "\u0000"}`, "application/json", true},
		{deep, "application/json", true}, {"plain text", "text/plain", true}, {"plain text", "application/jsonl", true},
		{"plain text", "application/json", false}, {"", "application/json", false}, {`{"a": 1`, "Application/JSON; charset=utf-8", false},
		{"plain text", "application/cloudevents+json", false}, {"plain text", "application/problem+json ;a=b", false},
		{strings.Repeat("[", 500_000), "application/json", false}, // deeper than that
	} {
		_, err := b.pool.Exec(t.Context(), publish, test.payload, test.contentType, "x")
		e, _ := errors.AsType[*pgconn.PgError](err)
		if test.accepted != (err == nil) || err != nil && (e == nil || e.Code != "22023" || !strings.Contains(e.Message, "content_type => 'text/plain'")) {
			t.Errorf("%.20s as %s: %v", test.payload, test.contentType, err)
		}
	}
	before := one[int](t, b.pool, "select count(*) from "+b.table("log"))
	_, err := b.pool.Exec(t.Context(), publish, "plain text", "application/json", "")
	for _, want := range []string{"type is required", "payload is not JSON"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
	if n := one[int](t, b.pool, "select count(*) from "+b.table("log")); n != before || before != 6 {
		t.Errorf("%d rows, %d before", n, before)
	}
}

// TestPublishFunctionValidates compares what the function refuses with what Message.Validate refuses.
//
// size: a table of cases and the loop that runs them.
func TestPublishFunctionValidates(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	valid := func() *postrider.Message {
		return &postrider.Message{ID: "i", Type: "t", Topic: "o", Source: "s", ContentType: "a/b", Time: time.Now(), Payload: []byte("p")}
	}
	long := func(n int) string { return strings.Repeat("x", n) }
	headers := func(n, size int) map[string]string {
		h := make(map[string]string)
		for i := range n {
			h[fmt.Sprintf("%04d", i)] = long(size)
		}
		return h
	}
	changes := map[string]func(m *postrider.Message){
		"nothing wrong": func(*postrider.Message) {}, "no type": func(m *postrider.Message) { m.Type = "" },
		"long type": func(m *postrider.Message) { m.Type = long(129) }, "longest type": func(m *postrider.Message) { m.Type = long(128) },
		"no id": func(m *postrider.Message) { m.ID = "" }, "long id": func(m *postrider.Message) { m.ID = long(65) },
		"long topic": func(m *postrider.Message) { m.Topic = long(250) }, "long key": func(m *postrider.Message) { m.Key = strings.Repeat("ö", 129) },
		"longest key": func(m *postrider.Message) { m.Key = strings.Repeat("ö", 128) }, "long tenant": func(m *postrider.Message) { m.Tenant = long(65) },
		"long subject": func(m *postrider.Message) { m.Subject = long(257) }, "bad source": func(m *postrider.Message) { m.Source = "a b" },
		"no source": func(m *postrider.Message) { m.Source = "" }, "long source": func(m *postrider.Message) { m.Source = long(257) },
		"bad content type": func(m *postrider.Message) { m.ContentType = "json" },
		"long causation":   func(m *postrider.Message) { m.CausationID = long(129) },
		"long correlation": func(m *postrider.Message) { m.CorrelationID = long(129) },
		"empty header":     func(m *postrider.Message) { m.Headers = map[string]string{"": "x"} },
		"64 headers":       func(m *postrider.Message) { m.Headers = headers(64, 1) }, "65 headers": func(m *postrider.Message) { m.Headers = headers(65, 1) },
		"16 KiB of headers":    func(m *postrider.Message) { m.Headers = headers(4, 4092) },
		"more than 16 KiB":     func(m *postrider.Message) { m.Headers = headers(4, 4093) },
		"largest payload":      func(m *postrider.Message) { m.Payload = make([]byte, 1<<20) },
		"large payload":        func(m *postrider.Message) { m.Payload = make([]byte, 1<<20+1) },
		"negative schema":      func(m *postrider.Message) { m.SchemaVersion = -1 },
		"negative aggregate":   func(m *postrider.Message) { m.AggregateVersion = -1 },
		"both delivery times":  func(m *postrider.Message) { m.DeliverAt, m.DeliverAfter = time.Now(), time.Hour },
		"negative wait":        func(m *postrider.Message) { m.DeliverAfter = -time.Hour },
		"two faults":           func(m *postrider.Message) { m.Type, m.SchemaVersion = "", -1 },
		"long text everywhere": func(m *postrider.Message) { m.Type, m.Topic, m.Key = long(999), long(999), long(999) },
	}
	for name, change := range changes {
		m := valid()
		change(m)
		text, err := json.Marshal(m.Headers)
		if err != nil {
			t.Fatal(err)
		}
		var at *time.Time
		if !m.DeliverAt.IsZero() {
			at = &m.DeliverAt
		}
		var after *time.Duration
		if m.DeliverAfter != 0 {
			after = &m.DeliverAfter
		}
		_, err = b.pool.Exec(t.Context(), "select "+b.table("publish")+`($1::text, $2::text, $3::text, $4::bytea,
			case when $5::text = 'null' then '{}' else $5::text::jsonb end, $6::text, $7::text, $8::text, $9::text, $10::text, $11::text, $12::text,
			$13::timestamptz, $14::interval, $15::int4, $16::int8)`, m.Topic, m.Key, m.Type, m.Payload, string(text), m.ID, m.Source, m.Subject,
			m.Tenant, m.CorrelationID, m.CausationID, m.ContentType, at, after, m.SchemaVersion, m.AggregateVersion)
		if want := m.Validate(postrider.Limits{}); (err == nil) != (want == nil) {
			t.Errorf("%s: the function says %v, Validate says %v", name, err, want)
		}
	}
	_, err := b.pool.Exec(t.Context(), "select "+b.table("publish")+"('t', 'k', '', '{}'::text, schema_version => -1, source => 'a b')")
	for _, want := range []string{"type is required", "schema_version is -1", "source is not a URI-reference"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
}
