package main

import (
	"os"
	"strings"
	"testing"

	"github.com/postrider/postrider/bench/internal/report"
)

// TestPage: -page can write each table of docs/performance.md, and each promise is in one of them.
func TestPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	r := &report.Report{}
	for _, s := range suites {
		r.Suites = append(r.Suites, &report.Suite{
			Name: s.name, Unit: s.unit, Figure: s.figure, Also: s.also,
			Rows: []*report.Row{{Name: "row of " + s.name, Role: report.Ours, Runs: []report.Figures{{s.figure: 1}}}},
		})
	}
	r.Promises = r.Judge(promises)
	updated, err := r.Update(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(updated, "| **row of "); n != strings.Count(updated, "<!-- bench: ")-4 { // the machine and the targets
		t.Errorf("%d tables were written", n)
	}
	for _, p := range r.Promises {
		for _, page := range []string{string(text), updated} { // a figure that is not measured again stays
			if n := strings.Count(page, "| "+p.Text+" |"); n != 1 {
				t.Errorf("%q is in %d tables", p.Text, n)
			}
		}
	}
}
