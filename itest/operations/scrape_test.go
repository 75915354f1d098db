package operations_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
	"github.com/postrider/postrider/telemetry"
	"github.com/postrider/postrider/telemetry/export"
)

// TestScrapeTorture: while 100,000 messages wait, or with make torture a million, ten scrapers at once cost one reading of the database, and
// a scrape with a reading takes no longer than a fifth of a second.
func TestScrapeTorture(t *testing.T) {
	t.Parallel()
	n := 100_000
	if os.Getenv("POSTRIDER_TORTURE") != "" { // make torture
		n = 1_000_000
	}
	s := backlogOf(t, n)
	p, err := export.Open(t.Context(), export.Config{Prometheus: true, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	tele, err := telemetry.New(telemetry.Config{Meter: p.Meter})
	must(t, err)
	scrape := func() string {
		answer := httptest.NewRecorder()
		p.Handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
		return answer.Body.String()
	}
	stop := tele.WatchStore(telemetry.StoreOf{Name: "main", System: "postgres", Store: s, Every: time.Hour})
	var scrapers sync.WaitGroup
	for range 10 {
		scrapers.Go(func() { scrape() })
	}
	scrapers.Wait()
	const count = "postrider_store_read_duration_seconds_count{store=\"main\"} "
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) { // on a busy machine the reading may last longer than a scrape
		text := scrape()
		if strings.Contains(text, `postrider_backlog_capped{relay="to-nats",side="relay",store="main"} 1`) {
			if !strings.Contains(text, count+"1\n") {
				t.Error("ten scrapers at once read the database more than once")
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no state is exported:\n%s", text)
		}
	}
	stop()

	defer tele.WatchStore(telemetry.StoreOf{Name: "main", System: "postgres", Store: s, Every: time.Nanosecond})()
	const longest = 200 * time.Millisecond
	shortest := time.Hour
	for deadline := time.Now().Add(time.Minute); shortest > longest && time.Now().Before(deadline); { // a busy machine delays some
		began := time.Now()
		scrape()
		shortest = min(shortest, time.Since(began))
	}
	t.Logf("a scrape with a reading takes %s", shortest)
	if shortest > longest {
		t.Errorf("a scrape takes %s, want %s at most", shortest, longest)
	}
}

// backlogOf returns a store with a relay for which n messages wait.
func backlogOf(t *testing.T, n int) *postgres.Store {
	t.Helper()
	s, pool, schema := newStore(t)
	owner := store.Owner{ID: "gone", Host: "h"}
	_, err := s.Heartbeat(t.Context(), "to-nats", owner, time.Hour)
	must(t, err)
	var claims []store.LeaseClaim
	for partition := range workers {
		claims = append(claims, store.LeaseClaim{Partition: partition, Token: store.NewToken()})
	}
	_, err = s.Acquire(t.Context(), "to-nats", owner, store.AcquireRequest{Claims: claims, TTL: time.Hour})
	must(t, err)
	_, err = pool.Exec(t.Context(), fmt.Sprintf(`insert into %[1]s.postrider_log (partition, id, topic, key, type)
		select i %% %[3]d, i::text, 't', 'k' || i %% 1000, 't' from generate_series(1, %[2]d) i`, schema, n, workers))
	must(t, err)
	_, err = pool.Exec(t.Context(), "analyze "+schema+".postrider_log")
	must(t, err)
	return s
}
