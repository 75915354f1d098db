package scenario_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/servertest"
)

// recording is what a Prometheus would have stored of processes that it scrapes, as input for promtool, whose time is not that of a clock.
type recording struct {
	every     time.Duration
	evaluated time.Duration   // the interval of evaluations; the alerts of the objective need that of their rules
	names     map[string]bool // metrics to record
	seen      map[string]bool // metrics that were exported
	scrapes   int
	series    map[string][]string // values, one for each scrape
	queries   strings.Builder
}

// metricNames finds the metrics in rules, without recorded ones.
var metricNames = regexp.MustCompile(`(?:^|[^:\w])(postrider_[a-z_]+)`)

// newRecording records the metrics that the rules use.
func newRecording(t *testing.T, every time.Duration) *recording {
	t.Helper()
	r := &recording{
		every: every, evaluated: 15 * time.Second,
		names: make(map[string]bool), seen: make(map[string]bool), series: make(map[string][]string),
	}
	for _, m := range metricNames.FindAllStringSubmatch(readFile(t, rulesFile), -1) {
		r.names[m[1]] = true
	}
	return r
}

// scrape records the metrics of the processes that Prometheus reaches, for some time.
func (r *recording) scrape(during time.Duration, processes ...*world) {
	for range during / r.every {
		for n, w := range processes {
			r.scrapeOne(n, w)
		}
		r.scrapes++
		for series, values := range r.series {
			r.series[series] = r.pad(values)
		}
		time.Sleep(r.every)
	}
}

func (r *recording) scrapeOne(n int, w *world) {
	for _, line := range w.scrape() {
		name, rest, _ := strings.Cut(line, "{")
		r.seen[name] = true
		if r.names[name] {
			labels, value, _ := strings.Cut(rest, "} ")
			series := fmt.Sprintf(`%s{instance="%d",%s}`, name, n, labels)
			r.series[series] = append(r.pad(r.series[series]), value)
		}
	}
}

// pad adds what Prometheus stores for a series that it did not find.
func (r *recording) pad(values []string) []string {
	for len(values) < r.scrapes {
		gone := len(values) > 0 && values[len(values)-1] != "stale" && values[len(values)-1] != "_"
		if gone {
			values = append(values, "stale")
		} else {
			values = append(values, "_")
		}
	}
	return values
}

// want adds a query at the time of the last scrape, which must return something, or nothing.
func (r *recording) want(expr string, something bool) {
	samples := "[]"
	if something {
		samples = "[{labels: '{}', value: 1}]"
	}
	fmt.Fprintf(&r.queries, "      - {eval_time: %s, expr: %q, exp_samples: %s}\n", time.Duration(r.scrapes-1)*r.every, "clamp_max(count("+expr+"), 1)", samples)
}

// check runs the rules on what was recorded, and the queries on both.
func (r *recording) check(t *testing.T) {
	t.Helper()
	rules, err := filepath.Abs(rulesFile)
	must(t, err)
	file := filepath.Join(t.TempDir(), "test.yml")
	var text strings.Builder
	fmt.Fprintf(&text, "rule_files: [%s]\nevaluation_interval: %s\ntests:\n  - interval: %s\n    input_series:\n", rules, r.evaluated, r.every)
	for series, values := range r.series {
		fmt.Fprintf(&text, "      - {series: '%s', values: '%s'}\n", series, strings.Join(shorter(values), " "))
	}
	text.WriteString("    promql_expr_test:\n" + r.queries.String())
	must(t, os.WriteFile(file, []byte(text.String()), 0o600))
	cmd := exec.CommandContext(t.Context(), servertest.Get(t, servertest.PromtoolBin), "test", "rules", file)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// shorter writes the same value several times as promtool reads it.
func shorter(values []string) (short []string) {
	for i, n := 0, 1; i < len(values); i, n = i+n, 1 {
		for ; i+n < len(values) && values[i+n] == values[i]; n++ {
		}
		switch {
		case values[i] == "_":
			short = append(short, fmt.Sprintf("_x%d", n))
		case n > 1:
			short = append(short, fmt.Sprintf("%sx%d", values[i], n-1))
		default:
			short = append(short, values[i])
		}
	}
	return short
}
