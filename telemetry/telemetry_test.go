package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
	"github.com/postrider/postrider/telemetry"
	"github.com/postrider/postrider/telemetry/export"
)

// world is a process with telemetry.
type world struct {
	*telemetry.Telemetry
	t         testing.TB
	providers *export.Providers
}

func newWorld(t testing.TB, c telemetry.Config) *world {
	t.Helper()
	p, err := export.Open(t.Context(), export.Config{Prometheus: true, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	t.Cleanup(func() { _ = p.Shutdown(context.Background()) })
	c.Meter = p.Meter
	made, err := telemetry.New(c)
	must(t, err)
	return &world{made, t, p}
}

// scrape returns the lines of /metrics.
func (w *world) scrape() []string {
	w.t.Helper()
	rec := httptest.NewRecorder()
	w.providers.Handler.ServeHTTP(rec, httptest.NewRequestWithContext(w.t.Context(), http.MethodGet, "/metrics", nil))
	body, err := io.ReadAll(rec.Result().Body)
	must(w.t, err)
	if rec.Code != http.StatusOK {
		w.t.Fatalf("status %d: %s", rec.Code, body)
	}
	return strings.Split(string(body), "\n")
}

// value returns the value of a series.
func (w *world) value(series string) string {
	w.t.Helper()
	for _, line := range w.scrape() {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			return rest
		}
	}
	return ""
}

func (w *world) wantValue(series, want string) {
	w.t.Helper()
	if got := w.value(series); got != want {
		w.t.Errorf("%s is %q, want %q", series, got, want)
	}
}

// series counts those of Postrider.
func (w *world) series() (n int) {
	for _, line := range w.scrape() {
		if strings.HasPrefix(line, "postrider_") {
			n++
		}
	}
	return n
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestCardinality: 100,000 types, keys, tenants, IDs and reasons make no series, and take no memory, in a relay, a consumer and an
// outbox.
func TestCardinality(t *testing.T) { // not in parallel: it measures the memory of the process
	w := newWorld(t, telemetry.Config{Types: []string{"known"}})
	o := w.Relay(telemetry.RelayOf{Store: "main", Relay: "to-nats", System: "nats"})
	if n := w.series(); n > 300 {
		t.Errorf("a relay has %d series, want 300 at most: ten relays fit into 3,000", n)
	}
	consumer, box := w.Consumer("main", "view"), w.Outbox("main")
	ctx := o.Attempting(t.Context(), []*postrider.Message{{Type: "known"}})
	report := func(n int) {
		m := postrider.Message{
			ID: fmt.Sprint("id", n), Type: fmt.Sprint("type", n), Topic: fmt.Sprint("topic", n), Key: fmt.Sprint("key", n),
			Tenant: fmt.Sprint("tenant", n), Time: time.Now(), CreatedAt: time.Now(),
		}
		a := []observe.Attempt{{Message: &m, Outcome: observe.AttemptOutcomes[n%len(observe.AttemptOutcomes)], Reason: fmt.Sprint("reason", n)}}
		o.Attempted(ctx, observe.Attempted{Attempts: a})
		o.Settled(observe.Settled{Settlements: []store.Settlement{{Dead: []store.DeadOutcome{{Key: m.Key, Reason: a[0].Reason}}}}})
		o.Failed(observe.OperationFetch, errors.New(m.ID))
		of := consumer.Processing(t.Context(), []*postrider.Message{&m})
		consumer.Processed(of, observe.Processed{Results: []observe.Result{{Message: &m, Outcome: observe.Applied}, {Message: &m, Outcome: observe.DeadLettered, Reason: a[0].Reason}}})
		box.Published(t.Context(), observe.Published{Messages: []*postrider.Message{&m}})
	}
	for n := range len(observe.AttemptOutcomes) {
		report(n)
	}
	before, heap := w.series(), heapInUse()
	for n := range 100_000 {
		report(n)
	}
	if grown := heapInUse() - heap; grown > 2<<20 { // 20 bytes for each
		t.Errorf("100,000 types and keys take %d KiB", grown>>10)
	}
	if after := w.series(); after != before {
		t.Errorf("%d series after 100,000 types and keys, %d before", after, before)
	}
	w.wantValue(`postrider_relay_attempts_total{outcome="delivered",relay="to-nats",side="relay",store="main",type="known"}`, "0")
	w.wantValue(`postrider_dead_lettered_total{reason="rejected",relay="to-nats",side="relay",store="main"}`, "100007")
	w.wantValue(`postrider_dead_lettered_total{reason="rejected",relay="view",side="consumer",store="main"}`, "100007")
	w.wantValue(`postrider_outbox_written_messages_total{store="main"}`, "100007")
}

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestCountersAreExportedFromTheStart: increase() sees the first event only if there was a 0 before.
func TestCountersAreExportedFromTheStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, telemetry.Config{})
	w.Relay(telemetry.RelayOf{Store: "main", Relay: "r"})
	w.Consumer("main", "c")
	w.Outbox("main")
	w.AuditFailed("main")
	w.Operations().BreakerChanged("payment", "", "closed")
	lines := w.scrape()
	for _, m := range telemetry.Metrics() {
		if m.Kind != telemetry.Counter || strings.HasPrefix(m.Name, "postrider_consumer_") || len(m.Labels) == 3 && !strings.Contains(m.Name, "_relay_") || m.Name == "postrider_unrouted_total" || strings.HasPrefix(m.Name, "postrider_saga_") {
			continue // what is read is there with the first reading, and the counters of a saga with its first transition
		}
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, m.Name+"{") && strings.HasSuffix(l, " 0") }) {
			t.Errorf("%s is not exported", m.Name)
		}
	}
	for _, side := range []string{"relay", "consumer"} {
		name := map[string]string{"relay": "r", "consumer": "c"}[side]
		w.wantValue(fmt.Sprintf(`postrider_dead_lettered_total{reason="attempts",relay=%q,side=%q,store="main"}`, name, side), "0")
	}
}

// slowStore is a store whose status can be delayed or fail, and counts how often it is read.
type slowStore struct {
	telemetry.Store
	wait  chan struct{}
	fail  error
	reads int
}

func (s *slowStore) Status(ctx context.Context) (store.Status, error) {
	s.reads++
	if s.wait != nil {
		select {
		case <-s.wait:
		case <-ctx.Done():
			return store.Status{}, ctx.Err()
		}
	}
	if s.fail != nil {
		return store.Status{}, s.fail
	}
	return s.Store.Status(ctx)
}

// TestReadingsAreShared: however many ask, the store is read once in Every; without an answer, the state is left out.
func TestReadingsAreShared(t *testing.T) {
	t.Parallel()
	w := newWorld(t, telemetry.Config{})
	s := &slowStore{Store: memory.New(memory.Config{Partitions: 3})}
	stop := w.WatchStore(telemetry.StoreOf{Name: "main", System: "memory", Store: s, Every: time.Hour})
	for range 10 {
		w.scrape()
	}
	if s.reads != 1 {
		t.Errorf("ten scrapes read the store %d times", s.reads)
	}
	w.wantValue(`postrider_store_up{store="main",system="memory"}`, "1")
	w.wantValue(`postrider_partitions{store="main"}`, "3")
	stop()
	if got := w.value(`postrider_store_up{store="main",system="memory"}`); got != "" {
		t.Errorf("after stop, the store is %s", got)
	}

	s.fail = errors.New("down")
	stop = w.WatchStore(telemetry.StoreOf{Name: "main", System: "memory", Store: s, Every: time.Nanosecond})
	w.wantValue(`postrider_store_up{store="main",system="memory"}`, "0")
	if got := w.value(`postrider_partitions{store="main"}`); got != "" {
		t.Errorf("a state that cannot be read is exported: %s partitions", got)
	}
	stop()

	s.fail, s.wait = nil, make(chan struct{})
	defer w.WatchStore(telemetry.StoreOf{Name: "main", System: "memory", Store: s, Every: time.Nanosecond})()
	w.wantValue(`postrider_store_up{store="main",system="memory"}`, "0") // returns although the store does not answer
	close(s.wait)
}

// TestStateOfARelay: what is in the database is exported, and what the process did.
//
// size: one history with its table of results.
func TestStateOfARelay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, telemetry.Config{})
	s := memory.New(memory.Config{Partitions: 2})
	o, err := outbox.New[*memory.Tx](s, outbox.Config{Source: "test", Observer: w.Outbox("main"), Propagator: w.Propagator()})
	must(t, err)
	r, err := relay.New(s, relay.Config{
		Name: "r", OnDead: relay.HoldKey, Observer: w.Relay(telemetry.RelayOf{Store: "main", Relay: "r"}), Logger: slog.New(slog.DiscardHandler),
	})
	must(t, err)
	must(t, r.HandleFunc("t", func(_ context.Context, m *postrider.Message) error {
		if m.Key == "bad" {
			return postrider.Dead("refused", errors.New("no"))
		}
		return nil
	}))
	defer w.WatchRelay("main", r)()
	defer w.WatchStore(telemetry.StoreOf{
		Name: "main", System: "memory", Store: s, Every: time.Nanosecond, Targets: map[string]time.Duration{"r": 30 * time.Second}, Path: t.TempDir(),
	})()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	_, err = o.InTx(t.Context(), func(ctx context.Context, tx *memory.Tx) error {
		for _, key := range []string{"a", "bad", "bad", "c"} {
			if _, err := o.Publish(ctx, tx, &postrider.Message{Type: "t", Key: key}); err != nil {
				return err
			}
		}
		return nil
	})
	must(t, err)
	_, err = o.InTx(t.Context(), func(ctx context.Context, tx *memory.Tx) error {
		_, err := o.Publish(ctx, tx, &postrider.Message{})
		return err
	})
	if err == nil {
		t.Error("a message without a type was published")
	}
	const labels = `{relay="r",side="relay",store="main"}`
	for deadline := time.Now().Add(time.Minute); w.value("postrider_delivered_total"+labels) != "2" || w.value("postrider_held_keys"+labels) != "1"; {
		if time.Now().After(deadline) {
			t.Fatalf("not delivered:\n%s", strings.Join(w.scrape(), "\n"))
		}
		time.Sleep(10 * time.Millisecond)
	}
	for series, want := range map[string]string{
		"postrider_dead_letters" + labels: "1", "postrider_parked_messages" + labels: "1", "postrider_relay_processes" + labels: "1",
		"postrider_delivery_target_seconds" + labels: "30", "postrider_partitions_unowned" + labels: "0", "postrider_relay_leases" + labels: "2",
		`postrider_relay_attempts_total{outcome="delivered",relay="r",side="relay",store="main"}`:  "2",
		`postrider_relay_attempts_total{outcome="dead",relay="r",side="relay",store="main"}`:       "1",
		`postrider_dead_lettered_total{reason="rejected",relay="r",side="relay",store="main"}`:     "1",
		`postrider_relay_latency_seconds_count` + labels:                                           "2",
		`postrider_outbox_written_messages_total{store="main"}`:                                    "4",
		`postrider_outbox_refused_messages_total{reason="invalid",store="main"}`:                   "1",
		`postrider_relay_lease_changes_total{change="gained",relay="r",side="relay",store="main"}`: "2",
	} {
		w.wantValue(series, want)
	}
	wantDescribed(t, w.scrape())
	cancel()
	must(t, <-done)
}

// wantDescribed checks that each exposed metric of Postrider is in the table, with its type and labels.
func wantDescribed(t *testing.T, lines []string) {
	t.Helper()
	described := make(map[string]telemetry.Metric)
	for _, m := range telemetry.Metrics() {
		described[m.Name] = m
	}
	for _, line := range lines {
		name, kind, ok := strings.Cut(strings.TrimPrefix(line, "# TYPE "), " ")
		if m, known := described[name]; ok && strings.HasPrefix(line, "# TYPE postrider_") && (!known || string(m.Kind) != kind) {
			t.Errorf("%s is exposed as %s; the table says %q", name, kind, m.Kind)
		}
		series, labels, _ := strings.Cut(line, "{")
		if !strings.HasPrefix(series, "postrider_") {
			continue
		}
		m, known := described[series]
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base, cut := strings.CutSuffix(series, suffix); cut && !known {
				m = described[base]
			}
		}
		for pair := range strings.SplitSeq(strings.Split(labels, "}")[0], ",") {
			if label, _, _ := strings.Cut(pair, "="); label != "le" && !slices.Contains(m.Labels, label) {
				t.Errorf("%s has the label %s; the table says %v", series, label, m.Labels)
			}
		}
	}
}

// TestLargeCall: of a call of a thousand messages, all are counted, and the latencies of about a hundred are recorded, from its first
// message to its last ones.
func TestLargeCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t, telemetry.Config{})
	o := w.Relay(telemetry.RelayOf{Store: "main", Relay: "r"})
	var attempts []observe.Attempt
	now := time.Now()
	for n := range 1000 {
		m := &postrider.Message{Type: "t", CreatedAt: now.Add(-time.Duration(1000-n) * time.Hour)}
		outcome := observe.AttemptDelivered
		if n >= 990 {
			outcome = observe.AttemptRetried
		}
		attempts = append(attempts, observe.Attempt{Message: m, Outcome: outcome})
	}
	o.Attempted(o.Attempting(t.Context(), []*postrider.Message{attempts[0].Message}), observe.Attempted{Attempts: attempts})
	const of = `relay="r",side="relay",store="main"`
	w.wantValue(`postrider_relay_attempts_total{outcome="delivered",`+of+`}`, "990")
	w.wantValue(`postrider_relay_attempts_total{outcome="retried",`+of+`}`, "10")
	w.wantValue(`postrider_relay_latency_seconds_count{`+of+`}`, "124")
	w.wantValue(`postrider_relay_batch_messages_sum{`+of+`}`, "1000")
}
