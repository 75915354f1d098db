package report

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestSummarise(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []float64
		want   Summary
	}{
		{nil, Summary{}},
		{[]float64{7}, Summary{7, 7, 7}},
		{[]float64{9, 1, 5}, Summary{5, 1, 9}},
		{[]float64{4, 1, 3, 2}, Summary{2.5, 1, 4}},
	} {
		if got := Summarise(c.values); got != c.want {
			t.Errorf("%v: %v, want %v", c.values, got, c.want)
		}
	}
	values := []float64{3, 1, 2}
	Summarise(values)
	if !slices.Equal(values, []float64{3, 1, 2}) {
		t.Errorf("the values were put in another order: %v", values)
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(i + 1)
	}
	for _, c := range []struct {
		sorted  []float64
		q, want float64
	}{{nil, 0.5, 0}, {hundred, 0.5, 50}, {hundred, 0.99, 99}, {hundred, 0.999, 100}, {hundred, 0, 1}, {hundred, 1, 100}, {hundred[:1], 0.99, 1}} {
		if got := Quantile(c.sorted, c.q); got != c.want {
			t.Errorf("quantile %v of %d values: %v, want %v", c.q, len(c.sorted), got, c.want)
		}
	}
}

// drains is a suite in which the machine slowed to half its speed after the first round.
func drains() *Suite {
	run := func(rates ...float64) (runs []Figures) {
		for _, r := range rates {
			runs = append(runs, Figures{"rate": r, "cpu": 1e6 / r})
		}
		return runs
	}
	return &Suite{
		Name: "drain", Title: "Drain a backlog <fast>", Messages: 100_000, Figure: "rate", Unit: "msg/s", Also: []Column{{Figure: "cpu", Title: "µs/msg"}},
		Rows: []*Row{
			{Name: "loop", Role: Limit, Runs: run(200_000, 100_000, 100_000)},
			{Name: "ours", Role: Ours, Limit: "loop", Peer: "theirs", Runs: run(180_000, 80_000, 85_000)},
			{Name: "theirs", Role: Quoted, Runs: run(50_000)},
			{Name: "not run", Role: Peer},
		},
	}
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

func TestRatiosAreTakenRoundByRound(t *testing.T) {
	t.Parallel()
	s := drains()
	ours := s.Row("ours")
	if got, ok := s.Ratio(ours, "loop"); !ok || !near(got.Median, 0.85) || !near(got.Min, 0.8) || !near(got.Max, 0.9) {
		t.Errorf("of loop: %v, %v", got, ok)
	}
	if got, ok := s.Ratio(ours, "theirs"); !ok || !near(got.Median, 1.7) || !near(got.Max, 3.6) {
		t.Errorf("of a single run: %v, %v", got, ok)
	}
	for _, with := range []string{"", "nobody", "not run"} {
		if got, ok := s.Ratio(ours, with); ok {
			t.Errorf("of %q: %v", with, got)
		}
	}
}

func TestPrint(t *testing.T) {
	t.Parallel()
	r := &Report{Rounds: 3, Suites: []*Suite{drains()}, Versions: map[string]string{"PostgreSQL": "15"}}
	r.Promises = r.Judge([]Promise{
		{Number: 2, Text: "of the loop", Suite: "drain", Row: "ours", With: "loop", AtLeast: 0.8},
		{Number: 2, Text: "of theirs", Suite: "drain", Row: "ours", With: "theirs", AtLeast: 2},
		{Number: 6, Text: "time", Suite: "drain", Row: "ours", Figure: "cpu", AtMost: 12},
		{Number: 7, Text: "elsewhere", Suite: "idle", Row: "ours", Figure: "cpu", AtMost: 1},
		{Number: 7, Text: "nobody", Suite: "drain", Row: "nobody", Figure: "cpu", AtMost: 1},
	})
	var b strings.Builder
	if err := r.Print(&b); err != nil {
		t.Fatal(err)
	}
	printed := regexp.MustCompile(` +`).ReplaceAllString(b.String(), " ") // column widths vary
	for _, want := range []string{
		"PostgreSQL 15\n", "of 3 rounds",
		"drain — Drain a backlog <fast> (msg/s, more is better; 100,000 messages)\n",
		" loop [limit] 100,000 100,000..200,000 10\n",
		" ours 85,000 80,000..180,000 0.85× 1.70× 11.8\n",
		" theirs [quoted] 50,000 50,000..50,000 20\n",
		" not run [peer] – –\n",
		"PASS 2. of the loop: 0.85 (0.8..0.9), at least 0.8\n",
		"MISS 2. of theirs: 1.7 (1.6..3.6), at least 2\n",
		"PASS 6. time: 11.8 (5.56..12.5), at most 12\n",
		"not run 7. elsewhere: at most 1\n",
		"not run 7. nobody: at most 1\n",
	} {
		if !strings.Contains(printed, want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}

// broken fails after some bytes.
type broken struct{ left int }

var errBroken = errors.New("pipe is broken")

func (w *broken) Write(b []byte) (int, error) {
	if w.left -= len(b); w.left < 0 {
		return 0, errBroken
	}
	return len(b), nil
}

func TestPrintReportsWhatFails(t *testing.T) {
	t.Parallel()
	r := &Report{Suites: []*Suite{drains()}, Promises: []Outcome{{Text: "one"}}}
	var all strings.Builder
	if err := r.Print(&all); err != nil {
		t.Fatal(err)
	}
	for n := range all.Len() {
		if err := r.Print(&broken{left: n}); !errors.Is(err, errBroken) {
			t.Fatalf("after %d bytes: %v", n, err)
		}
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{0: "0", 0.05236: "0.0524", 12.34: "12.3", 999: "999", 1000: "1,000", 12345.6: "12,346", 1e7: "10,000,000", -2500: "-2,500"} {
		if got := Number(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}

func TestRegressions(t *testing.T) {
	t.Parallel()
	slower := drains()
	latency := &Suite{Name: "latency", Figure: "p99", Lower: true, Rows: []*Row{
		{Name: "bare", Role: Limit, Runs: []Figures{{"p99": 1}}},
		{Name: "ours", Role: Ours, Limit: "bare", Runs: []Figures{{"p99": 3}}},
	}}
	r := &Report{Suites: []*Suite{slower, latency}}
	got := r.Ratios()
	if len(got) != 3 || !near(got["drain/ours of loop"], 0.85) || got["latency/ours of bare"] != 3 {
		t.Fatalf("ratios: %v", got)
	}
	for _, c := range []struct {
		name     string
		baseline Baseline
		worse    []string // how the lines begin
		compared int
	}{
		{"as before", got, nil, 3},
		{"within the tolerance", Baseline{"drain/ours of loop": 0.95, "latency/ours of bare": 2.7}, nil, 2},
		{"better", Baseline{"drain/ours of loop": 0.1, "latency/ours of bare": 30}, nil, 2},
		{"worse", Baseline{"drain/ours of loop": 1.2, "latency/ours of bare": 1.5}, []string{"drain/ours of loop: 0.85, was 1.2 (worse by 29%)",
			"latency/ours of bare: 3, was 1.5 (worse by 100%)"}, 2},
		{"of other rows", Baseline{"drain/others of loop": 5}, nil, 0},
	} {
		worse, compared := r.Regressions(c.baseline, 0.15)
		if !slices.Equal(worse, c.worse) || compared != c.compared {
			t.Errorf("%s: %q of %d, want %q of %d", c.name, worse, compared, c.worse, c.compared)
		}
	}
}

func TestReadBaseline(t *testing.T) {
	t.Parallel()
	if b, err := ReadBaseline([]byte(`{"drain/ours of loop": 0.85}`)); err != nil || b["drain/ours of loop"] != 0.85 {
		t.Errorf("%v, %v", b, err)
	}
	if _, err := ReadBaseline([]byte(`{`)); err == nil || !strings.Contains(err.Error(), "-write-baseline") {
		t.Errorf("half a file: %v", err)
	}
}

func TestSVG(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	if err := drains().SVG(&b); err != nil {
		t.Fatal(err)
	}
	count := make(map[string]int)
	for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, b.String())
		}
		if e, ok := token.(xml.StartElement); ok {
			count[e.Name.Local]++
		}
	}
	// A background and three bars (one row was not run); lines for the two that have a range.
	if count["svg"] != 1 || count["rect"] != 4 || count["line"] != 2 || !strings.Contains(b.String(), "Drain a backlog &lt;fast&gt;") {
		t.Errorf("%v in\n%s", count, b.String())
	}
}
