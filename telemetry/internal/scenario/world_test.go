package scenario_test

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/postrider/postrider/telemetry"
	"github.com/postrider/postrider/telemetry/export"
	"github.com/postrider/postrider/telemetry/internal/scenario"
)

const rulesFile = "../../../deploy/prometheus/postrider.rules.yml"

// world is a process with telemetry.
type world struct {
	*telemetry.Telemetry
	t       *testing.T
	metrics http.Handler
	log     *fields
}

// config is that of a system whose processes export through this one.
func (w *world) config(rest time.Duration) scenario.Config {
	return scenario.Config{Telemetry: w.Telemetry, Rest: rest, Logger: slog.New(w.log)}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newTracedWorld(t, nil)
}

func newTracedWorld(t *testing.T, tracer trace.TracerProvider) *world {
	t.Helper()
	p, err := export.Open(t.Context(), export.Config{Prometheus: true, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	t.Cleanup(func() { _ = p.Shutdown(context.Background()) })
	made, err := telemetry.New(telemetry.Config{Meter: p.Meter, Tracer: tracer})
	must(t, err)
	return &world{made, t, p.Handler, &fields{seen: make(map[string]bool)}}
}

// scrape returns the lines of /metrics.
func (w *world) scrape() []string {
	w.t.Helper()
	rec := httptest.NewRecorder()
	w.metrics.ServeHTTP(rec, httptest.NewRequestWithContext(w.t.Context(), http.MethodGet, "/metrics", nil))
	if rec.Code != http.StatusOK {
		w.t.Fatalf("status %d: %s", rec.Code, rec.Body)
	}
	return strings.Split(rec.Body.String(), "\n")
}

// fields is a slog.Handler that notes the names of fields.
type fields struct {
	mu   sync.Mutex
	seen map[string]bool
}

// Enabled implements slog.Handler.
func (*fields) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (f *fields) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		f.add(a)
		return true
	})
	return nil
}

// WithAttrs implements slog.Handler.
func (f *fields) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		f.add(a)
	}
	return f
}

// WithGroup implements slog.Handler.
func (f *fields) WithGroup(string) slog.Handler { return f }

func (f *fields) add(a slog.Attr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen[a.Key] = true
}

const page = "../../../docs/operations/metrics.md"

// documented returns the names in code that begin the rows of a table on the page, in the given column.
func documented(t *testing.T, heading string, column int) (names []string) {
	t.Helper()
	_, section, ok := strings.Cut(readFile(t, page), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("the page has no section %s", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.SplitSeq(section, "\n") {
		if cells := strings.Split(line, "|"); len(cells) > column {
			for i, part := range strings.Split(cells[column], "`") {
				if name, _, _ := strings.Cut(part, "{"); i%2 == 1 {
					names = append(names, name)
				}
			}
		}
	}
	return names
}

// wantMapped checks that the metrics that those of other systems are mapped to were exported.
func (w *world) wantMapped(seen map[string]bool) {
	w.t.Helper()
	for _, name := range documented(w.t, "If you come from another system", 2) {
		if strings.HasPrefix(name, "postrider_") && !seen[name] && !seen[name+"_bucket"] {
			w.t.Errorf("%s was not exported", name)
		}
	}
}

// wantFields checks that the fields of logs are those on the page.
func (w *world) wantFields() {
	w.t.Helper()
	known := documented(w.t, "Logs", 1)
	for _, name := range slices.Sorted(maps.Keys(w.log.seen)) {
		if !slices.Contains(known, name) {
			w.t.Errorf("the field %s of logs is not documented", name)
		}
	}
	for _, name := range known {
		if !w.log.seen[name] && name != "holders" { // of migrations, whose tests check it
			w.t.Errorf("no line of the log has the field %s", name)
		}
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
