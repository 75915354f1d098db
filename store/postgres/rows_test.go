//go:build !race

package postgres_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// TestRowsOfOtherPrograms: whatever a program inserts, the messages after it are delivered, and what is no message becomes a dead
// letter that can be exported.
func TestRowsOfOtherPrograms(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{Partitions: 1})
	const least = `partition, id, topic, type, key`
	dead, delivered := []string{}, []string{}
	insert := func(id string, dies bool, columns, values string, args ...any) {
		t.Helper()
		if _, err := b.pool.Exec(t.Context(), fmt.Sprintf("insert into %s (%s%s) values (0, '%s', 't', 'x', 'k'%s)",
			b.table("log"), least, columns, id, values), args...); err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		if dies {
			dead = append(dead, id)
		} else {
			delivered = append(delivered, id)
		}
	}
	nested := strings.Repeat("[", 6_000) + strings.Repeat("]", 6_000)
	insert("first", false, "", "")
	insert("at once", false, ", available_at", ", '-infinity'")
	insert("before Christ", false, ", available_at", ", '4000-01-01 BC'")
	insert("happened in the far future", true, ", message_time", ", '12026-01-01'")
	insert("happened before Christ", true, ", message_time", ", '4000-01-01 BC'")
	insert("written in the far future", true, ", created_at", ", '12026-01-01'")
	insert("happened at infinity", false, ", message_time", ", 'infinity'")
	insert("headers in lists", true, ", headers", ", $1::text::jsonb", `{"a": `+nested+`}`)
	insert("headers are null", true, ", headers", ", 'null'")
	insert("long source", true, ", source", ", repeat('s', 5000)")
	insert("deep payload", false, ", payload", ", convert_to($1::text, 'UTF8')", nested)
	for _, available := range []string{"'infinity'", "'200000-01-01'"} {
		b.exec(t, fmt.Sprintf("insert into %s (%s, available_at) values (0, 'never', 't', 'x', 'k', %s)", b.table("log"), least, available))
	}
	id := one[string](t, b.pool, fmt.Sprintf("select %s('t', 'k', 'x', '{}'::text, deliver_after => '10000 years')", b.table("publish")))
	insert("last", false, "", "")

	got := b.runRelay(t, relay.Config{}, len(delivered), len(dead), 3)
	if !slices.Equal(got, delivered) {
		t.Errorf("delivered %q, want %q", got, delivered)
	}
	var deadLetters []string
	for l, err := range deadletter.New(b).ListDead(t.Context(), store.DeadFilter{}, 0, 0) {
		if err != nil {
			t.Fatal(err)
		}
		deadLetters = append(deadLetters, l.Message.ID)
		if l.Reason != postrider.Undecodable || l.Cause == "" {
			t.Errorf("dead letter %+v", l)
		}
	}
	if !slices.Equal(deadLetters, dead) {
		t.Errorf("dead letters of %q, want %q", deadLetters, dead)
	}
	var archive bytes.Buffer
	if n, err := deadletter.New(b).Export(t.Context(), &archive, store.DeadFilter{}); int(n) != len(dead) || err != nil {
		t.Errorf("exported %d, %v", n, err)
	}
	if n := one[int64](t, b.pool, "select count(*) from "+b.table("parked")+" where id in ('never', '"+id+"')"); n != 3 {
		t.Errorf("%d messages wait for a time that never comes, want 3", n)
	}
}

// runRelay runs a relay until it has delivered, dead-lettered and parked so many messages, and returns what it delivered.
func (b *bundle) runRelay(t *testing.T, cfg relay.Config, delivered, dead, parked int) (ids []string) {
	t.Helper()
	cfg.Name, cfg.Logger = "r", slog.New(slog.DiscardHandler)
	r, err := relay.New(b, cfg)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	if err := r.HandleFunc("x", func(_ context.Context, m *postrider.Message) error {
		if _, err := m.MarshalJSON(); err != nil {
			t.Errorf("message %s has no JSON form: %v", m.ID, err)
		}
		mu.Lock()
		defer mu.Unlock()
		ids = append(ids, m.ID)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.Run(context.Background()) }()
	defer func() {
		if err := r.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	deadline, tick := time.After(5*time.Minute), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for {
		st, err := b.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		n := len(ids)
		mu.Unlock()
		for _, s := range st.Relays {
			if n >= delivered && int(s.Dead.N) >= dead && int(s.Parked.N) >= parked {
				return ids
			}
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%d of %d messages are delivered: %+v", n, delivered, st.Relays)
		}
	}
}

// TestPartitionsThatDoNotExist: messages that a program has inserted into them are moved to those that exist, and delivered in
// order.
func TestPartitionsThatDoNotExist(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{Partitions: 4})
	b.lease(t, "r")
	var want []string
	for i, partition := range []int{99, 99, -1, 4, 32767, -32768} {
		id := fmt.Sprint("m", i)
		want = append(want, id)
		b.exec(t, fmt.Sprintf("insert into %s (partition, id, topic, type, key, tenant, headers, payload) values (%d, '%s', 't', 'x', 'k', 'acme', '{\"a\":\"b\"}', 'p')",
			b.table("log"), partition, id))
	}
	for range 2 { // the second time there is nothing to do
		if _, err := b.Maintain(t.Context(), store.Retention{For: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	if n := one[int64](t, b.pool, "select count(*) from "+b.table("log")+" where partition between 0 and 3 and tenant = 'acme' and headers = '{\"a\":\"b\"}' and payload = 'p'"); n != 6 {
		t.Errorf("%d of 6 messages are in partitions that exist", n)
	}
	b.exec(t, "update "+b.table("relays")+" set alive_until = '-infinity'")
	b.exec(t, "update "+b.table("leases")+" set owner = '', token = ''")
	if got := b.runRelay(t, relay.Config{}, 6, 0, 0); !slices.Equal(got, want) {
		t.Errorf("delivered %q, want %q", got, want)
	}
}
