package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/bench/internal/report"
	"github.com/postrider/postrider/internal/servertest"
)

// TestRun runs a suite against the test server, with all its outputs.
func TestRun(t *testing.T) {
	t.Parallel()
	server := servertest.Get(t, servertest.Postgres)
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	args := []string{"-postgres", server, "-dir", dir, "-messages", "1000", "-rounds", "2", "-run", "^conditions$", "-json", file("report.json"),
		"-charts", dir, "-baseline", file("baseline.json")}
	var out strings.Builder
	if err := run(t.Context(), append(args, "-write-baseline"), &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file("report.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r report.Report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	s := r.Suite("conditions")
	if s == nil || len(s.Rows) != 3 {
		t.Fatalf("report: %s", text)
	}
	for _, row := range s.Rows {
		if len(row.Runs) != 2 || row.Runs[0][figureRate] <= 0 || row.Runs[0][figureClient] <= 0 || row.Runs[0][figureWAL] < 0 {
			t.Errorf("%s: %v", row.Name, row.Runs)
		}
	}
	if r.Settings["PostgreSQL fsync"] == "" || r.Versions["PostgreSQL"] == "" || r.Machine.Cores == 0 {
		t.Errorf("the report does not say where it comes from: %v, %v, %v", r.Settings, r.Versions, r.Machine)
	}
	for _, name := range []string{"conditions.svg", "baseline.json"} {
		if _, err := os.Stat(file(name)); err != nil {
			t.Error(err)
		}
	}
	if !strings.Contains(out.String(), undisturbed) {
		t.Errorf("printed: %s", out.String())
	}
	left, err := filepath.Glob(file("postrider-bench-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

func TestCheckComparesWithTheBaseline(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "baseline.json")
	r := &report.Report{Suites: []*report.Suite{{Name: "s", Figure: figureRate, Rows: []*report.Row{
		{Name: "limit", Runs: []report.Figures{{figureRate: 100}}}, {Name: "ours", Limit: "limit", Runs: []report.Figures{{figureRate: 80}}},
	}}}}
	for _, c := range []struct{ baseline, want string }{
		{`{"s/ours of limit": 0.9}`, ""},
		{`{"s/ours of limit": 1}`, "s/ours of limit: 0.8, was 1 (worse by 20%)"},
		{`{"s/theirs of limit": 1}`, "nothing to compare"},
		{`{`, "read the baseline"},
	} {
		if err := os.WriteFile(file, []byte(c.baseline), 0o600); err != nil {
			t.Fatal(err)
		}
		err := check(file, r, io.Discard)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.baseline, err, c.want)
		}
	}
	if err := check(file+".none", r, io.Discard); err == nil {
		t.Error("a missing baseline is none")
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{"-quick", "-run", "^drain$"}, io.Discard)
	if err != nil || o.messages != 10_000 || o.rounds != 1 || !o.only.MatchString("drain") || o.only.MatchString("drain-sqlite") {
		t.Errorf("%+v, %v", o, err)
	}
	for _, args := range [][]string{{"-messages", "10"}, {"-rounds", "0"}, {"-run", "("}, {"drain"}, {"-fast"}} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	o := options{messages: 10_000, rounds: 9}
	for _, c := range []struct {
		suite            suite
		quick            bool
		messages, rounds int
	}{
		{suite{}, false, 10_000, 9},
		{suite{share: 0.3}, false, 3_000, 9},
		{suite{share: 0.01}, false, 1_000, 9},
		{suite{long: true, share: 0.1}, false, 3_000, 3},
		{suite{long: true, most: 1}, false, 30_000, 1},
		{suite{long: true}, true, 10_000, 9},
	} {
		o.quick = c.quick
		if messages, rounds := o.size(&c.suite); messages != c.messages || rounds != c.rounds {
			t.Errorf("%+v: %d messages, %d rounds", c, messages, rounds)
		}
	}
}

// TestTimesOfAnotherProcess: what a process writes is what the one that publishes reads.
func TestTimesOfAnotherProcess(t *testing.T) {
	t.Parallel()
	p := newPaced(1, 2)
	c := &child{Times: filepath.Join(t.TempDir(), "times"), Count: 2}
	elsewhere := newTimes(c)
	for _, number := range []int{1, 1, 2, -1, 0} { // a duplicate and others' messages do not count
		if _, err := os.Stat(c.Times); err == nil {
			t.Error("the times are written before the last one")
		}
		if err := elsewhere.record(number); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.adopt(t.Context(), c.Times); err != nil {
		t.Fatal(err)
	}
	first, last := time.Duration(p.handled[1].Load()), time.Duration(p.handled[0].Load())
	if first <= 0 || last < first || last > time.Since(p.began) {
		t.Errorf("%s and %s after the beginning", first, last)
	}
}

func TestRunRefusesWhatMatchesNothing(t *testing.T) {
	t.Parallel()
	err := run(t.Context(), []string{"-dir", t.TempDir(), "-run", "^nothing$"}, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "publish-32") {
		t.Errorf("%v, want the names of the suites", err)
	}
}

func TestSuitesHaveNamesOfTheirOwnAndPromisesAreAboutThem(t *testing.T) {
	t.Parallel()
	names := suiteNames()
	slices.Sort(names)
	if len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("a name comes twice: %q", names)
	}
	for _, p := range promises {
		if !slices.Contains(names, p.Suite) || p.Row == "" || p.With == "" == (p.Figure == "") || p.AtLeast == 0 == (p.AtMost == 0) {
			t.Errorf("promise %+v", p)
		}
	}
}

func TestPayloads(t *testing.T) {
	t.Parallel()
	if len(payload) != 500 || !json.Valid(payload) {
		t.Errorf("%d bytes: %s", len(payload), payload)
	}
	text, err := json.Marshal(riverJob{number: 4711})
	if err != nil || len(text) != 500 {
		t.Fatalf("%d bytes of a job: %v", len(text), err)
	}
	stored := bytes.Replace(text, []byte(`"number":"`), []byte(`"number": "`), 1) // as formatted by jsonb
	var job riverJob
	if err := json.Unmarshal(stored, &job); err != nil || job.number != 4711 {
		t.Errorf("read as %v, %v", job, err)
	}
	if err := json.Unmarshal([]byte(`{"order": "1"}`), &job); err == nil {
		t.Error("a job without a number was read")
	}
}

func TestParseStat(t *testing.T) {
	t.Parallel()
	line := "42 (a) b (c)) S 7 42 42 0 -1 4194560 100 200 0 0 11 22 33 44 20 0 1 0 100 0 0"
	s, err := parseStat([]byte(line))
	if err != nil || s.parent != 7 || s.own != 330*time.Millisecond || s.waitedFor != 770*time.Millisecond {
		t.Errorf("%+v, %v", s, err)
	}
	for _, bad := range []string{"42 (a) S 7", strings.Replace(line, "22", "x", 1)} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
	if own, err := treeCPU(os.Getpid()); err != nil || own < 0 {
		t.Errorf("processor time of this process: %s, %v", own, err)
	}
	if peak, err := peakRSS(os.Getpid()); err != nil || peak < 1 {
		t.Errorf("memory of this process: %v MiB, %v", peak, err)
	}
}

func TestPacedFigures(t *testing.T) {
	t.Parallel()
	const n = 1000
	p := newPaced(1_000_000, n)
	if err := p.publishAll(t.Context(), func(context.Context, int) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		p.committed[i].Store(int64(time.Second))
		p.handle(i)
		p.handled[i].Store(int64(time.Second + time.Duration(i)*time.Millisecond))
		p.handle(i) // a duplicate: the first delivery counts
	}
	p.handled[500].Store(1) // delivered before the client knew about its commit
	got, err := p.figures(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// 900 values, from 100 to 999, with a 0 instead of 500.
	if got[figureP50] != 549 || got[figureP99] != 990 || got[figureP999] != 999 {
		t.Errorf("%v", got)
	}
}

func TestParallelReturnsTheFirstError(t *testing.T) {
	t.Parallel()
	err := parallel(t.Context(), 4, 100, func(_ context.Context, i int) error {
		if i == 50 {
			return io.ErrUnexpectedEOF
		}
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "message 50") {
		t.Errorf("%v", err)
	}
}
