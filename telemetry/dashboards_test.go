package telemetry_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/telemetry"
	"github.com/postrider/postrider/telemetry/internal/dashboard"
)

// TestDashboardsAreCurrent: the files are what the description says, and its queries use metrics and units that exist.
func TestDashboardsAreCurrent(t *testing.T) {
	t.Parallel()
	for _, d := range dashboard.All() {
		want, err := d.JSON()
		must(t, err)
		file := "../deploy/grafana/" + d.File + ".json"
		if *update {
			must(t, os.WriteFile(file, want, 0o644))
		} else if got, err := os.ReadFile(file); err != nil || string(got) != string(want) {
			t.Errorf("%s is not current; run: go test ./telemetry -run TestDashboardsAreCurrent -update (%v)", file, err)
		}
		for _, p := range d.Panels {
			if p.Title == "" || p.Help == "" || p.Unit == "" || len(p.Queries) == 0 {
				t.Errorf("%s: panel %+v is incomplete", d.File, p)
			}
			for _, q := range p.Queries {
				for _, name := range unknownMetrics(q.Expr) {
					if name != "postrider_late" {
						t.Errorf("%s, %s: nothing exports %s", d.File, p.Title, name)
					}
				}
				checkQuery(t, d.File+", "+p.Title, p.Unit, q.Expr)
			}
		}
	}
}

// checkQuery checks that counters are used as rates, and nothing else is, and that the unit is that of the metric.
func checkQuery(t *testing.T, where, unit, expr string) {
	t.Helper()
	for _, m := range telemetry.Metrics() {
		used := strings.Contains(expr, m.Name+"{") || strings.Contains(expr, m.Name+"_bucket{")
		if !used {
			continue
		}
		rated := strings.Contains(expr, "rate("+m.Name) || strings.Contains(expr, "increase("+m.Name)
		if rated == (m.Kind == telemetry.Gauge) {
			t.Errorf("%s: %s is a %s: %s", where, m.Name, m.Kind, expr)
		}
		if m.Kind != telemetry.Counter && (m.Unit == "s") != (unit == "s") || m.Unit == "By" && unit != "bytes" {
			t.Errorf("%s: %s has unit %q, the panel %q", where, m.Name, m.Unit, unit)
		}
	}
}

// TestDashboardsHaveGrafanasTypes: Grafana's own types of a dashboard accept each file. They do not accept a field that they do not have, or a
// value of another type.
func TestDashboardsHaveGrafanasTypes(t *testing.T) {
	t.Parallel()
	packages := filepath.Join(servertest.Get(t, servertest.Grafana), "node_modules")
	dir := t.TempDir()
	must(t, os.Symlink(packages, filepath.Join(dir, "node_modules")))
	write := func(name, content string) {
		must(t, os.WriteFile(filepath.Join(dir, name+".ts"), []byte("import { type Dashboard } from '@grafana/schema';\nexport const d: Dashboard = "+content), 0o600))
	}
	names := []string{"broken.ts"}
	for _, d := range dashboard.All() {
		content := readFile(t, "../deploy/grafana/"+d.File+".json")
		write(d.File, content)
		write("broken", strings.NewReplacer(`"gridPos"`, `"gridPosition"`, `"refresh": 2`, `"refresh": "often"`).Replace(content))
		names = append(names, d.File+".ts")
	}
	compiler := exec.CommandContext(t.Context(), filepath.Join(packages, ".bin", "tsc"),
		slices.Concat([]string{"--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext"}, names)...)
	compiler.Dir = dir
	out, err := compiler.CombinedOutput()
	if !strings.Contains(string(out), "gridPosition") || !strings.Contains(string(out), "VariableRefresh") {
		t.Errorf("a wrong name and a wrong value are not found: %v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "postrider-") || strings.HasPrefix(line, "error") {
			t.Error(line)
		}
	}
}

// TestDashboardQueriesParse: Prometheus understands each query.
func TestDashboardQueriesParse(t *testing.T) {
	t.Parallel()
	promtool := servertest.Get(t, servertest.PromtoolBin)
	var rules strings.Builder
	rules.WriteString("groups:\n  - name: queries\n    rules:\n")
	for _, d := range dashboard.All() {
		for i, p := range d.Panels {
			for n, q := range p.Queries {
				fmt.Fprintf(&rules, "      - {record: %q, expr: %q}\n", fmt.Sprintf("query:%s:%d_%d", strings.ReplaceAll(d.File, "-", "_"), i, n), q.All())
			}
		}
	}
	file := filepath.Join(t.TempDir(), "rules.yml")
	must(t, os.WriteFile(file, []byte(rules.String()), 0o600))
	if out, err := exec.CommandContext(t.Context(), promtool, "check", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
