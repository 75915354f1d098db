package telemetry_test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/telemetry"
)

var update = flag.Bool("update", false, "write the table into docs/operations/metrics.md")

const (
	page  = "../docs/operations/metrics.md"
	begin = "<!-- metrics -->\n"
	end   = "<!-- end of metrics -->\n"
)

// TestMetricsPage: the page lists every metric, with type, unit, labels and meaning.
func TestMetricsPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(page)
	must(t, err)
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatalf("%s has no %s… %s", page, begin, end)
	}
	var b strings.Builder
	b.WriteString("| metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n")
	units := map[string]string{"s": "seconds", "By": "bytes"}
	for _, m := range telemetry.Metrics() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", m.Name, m.Kind, cmp.Or(units[m.Unit], "–"), strings.Join(m.Labels, ", "), m.Help)
	}
	want := before + begin + b.String() + end + after
	if *update {
		must(t, os.WriteFile(page, []byte(want), 0o644))
		return
	}
	if string(text) != want {
		t.Errorf("%s is not current; run: go test ./telemetry -run TestMetricsPage -update", page)
	}
}

// TestNamesOfMetrics: a name tells the type and the unit.
func TestNamesOfMetrics(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, m := range telemetry.Metrics() {
		if seen[m.Name] {
			t.Errorf("%s is there twice", m.Name)
		}
		seen[m.Name] = true
		if strings.HasSuffix(m.Name, "_total") != (m.Kind == telemetry.Counter) {
			t.Errorf("%s is a %s", m.Name, m.Kind)
		}
		if strings.HasSuffix(m.Name, "_seconds") != (m.Unit == "s") || strings.HasSuffix(m.Name, "_bytes") != (m.Unit == "By") {
			t.Errorf("%s has the unit %q", m.Name, m.Unit)
		}
		for _, label := range m.Labels {
			if slices.Contains([]string{"instance", "job", "le", "key", "tenant", "message", "type"}, label) {
				t.Errorf("%s has the label %s", m.Name, label)
			}
		}
		if m.Name != "postrider_build_info" && !slices.Contains(m.Labels, "store") && !slices.Contains(m.Labels, "operation") {
			t.Errorf("%s has neither the label store nor operation", m.Name)
		}
	}
}

// TestMappedMetrics: the metrics that other systems' metrics are mapped to exist.
func TestMappedMetrics(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(page)
	must(t, err)
	_, mapping, ok := strings.Cut(string(text), "\n## If you come from another system\n")
	if !ok {
		t.Fatal("the page has no table of other systems' metrics")
	}
	known := make(map[string]bool)
	for _, m := range telemetry.Metrics() {
		known[m.Name] = true
	}
	var sources []string
	for line := range strings.SplitSeq(mapping, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		sources = append(sources, cells[1])
		for _, part := range strings.Split(cells[2], "`") {
			if name, _, _ := strings.Cut(part, "{"); strings.HasPrefix(name, "postrider_") && !known[name] {
				t.Errorf("%s is mapped to %s, which does not exist", strings.TrimSpace(cells[1]), name)
			}
		}
	}
	for _, source := range mappedSources {
		if !slices.ContainsFunc(sources, func(cell string) bool { return strings.Contains(cell, source) }) {
			t.Errorf("%q is mapped to nothing", source)
		}
	}
}

// mappedSources are the metrics of other systems: of outboxes, dead letters, inboxes, dispatchers, circuit breakers and sagas.
var mappedSources = []string{
	"entries written", "entries delivered", "entries failed", "duration of a publishing cycle", "dead letters added", "dead letters replayed, discarded",
	"dead letters now", "idempotency checks", "pending entries, age", "publish success", "publish latency", "claim duration", "inbox duplicates",
	"consumer lag", "woken by a commit", "dispatched, failed, dead, deferred", "skipped because delayed", "depth of queues", "claims released",
	"state of a breaker", "failure rate, buffered calls", "retries, ignored errors", "requests to other systems", "duration of listeners",
	"sagas started", "sagas completed", "sagas timed out", "duration of sagas", "prefix",
}
