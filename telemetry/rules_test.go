package telemetry_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/telemetry"
)

const rulesFile = "../deploy/prometheus/postrider.rules.yml"

// rulesTests are the tests of the rules. Those of the objective are apart: the others do not need as many evaluations.
var rulesTests = []string{"../deploy/prometheus/postrider.rules.test.yml", "../deploy/prometheus/postrider.objective.test.yml"}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}

// TestRules: each alert fires on made series, and not on those beside them.
func TestRules(t *testing.T) {
	t.Parallel()
	promtool := servertest.Get(t, servertest.PromtoolBin)
	for _, args := range [][]string{
		{"check", "rules", "--lint=all", "--lint-fatal", rulesFile}, append([]string{"test", "rules"}, rulesTests...),
	} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// TestEndpointIsWellFormed: promtool has nothing to say about names, types and help of what is exposed.
func TestEndpointIsWellFormed(t *testing.T) {
	t.Parallel()
	promtool := servertest.Get(t, servertest.PromtoolBin)
	w := newWorld(t, telemetry.Config{})
	w.Relay(telemetry.RelayOf{Store: "main", Relay: "r"})
	w.Consumer("main", "c")
	w.Outbox("main")
	cmd := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	lines := slices.DeleteFunc(w.scrape(), func(l string) bool { return !strings.Contains(l, "postrider_") })
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// metricNames finds the metrics in a query, without recorded ones.
var metricNames = regexp.MustCompile(`(?:^|[^:\w])(postrider_[a-z_]+)`)

// unknownMetrics returns the names in a query that no metric has.
func unknownMetrics(query string) (unknown []string) {
	for _, m := range metricNames.FindAllStringSubmatch(query, -1) {
		known := slices.ContainsFunc(telemetry.Metrics(), func(one telemetry.Metric) bool {
			if one.Kind != telemetry.Histogram {
				return one.Name == m[1]
			}
			return slices.Contains([]string{one.Name + "_bucket", one.Name + "_sum", one.Name + "_count"}, m[1])
		})
		if !known {
			unknown = append(unknown, m[1])
		}
	}
	return unknown
}

var (
	alertNames  = regexp.MustCompile(`- alert: (\w+)`)
	runbookURLs = regexp.MustCompile(`runbook_url: "https://github\.com/postrider/postrider/blob/main/([^"]+)"`)
)

// TestAlertsAreComplete: each alert uses metrics that exist, and has a test in which it fires, a row on the page, and a runbook
// that names it.
func TestAlertsAreComplete(t *testing.T) {
	t.Parallel()
	rules, tests := readFile(t, rulesFile), readFile(t, rulesTests[0])+readFile(t, rulesTests[1])
	overview := readFile(t, "../docs/operations/alerts.md")
	var code []string
	for line := range strings.SplitSeq(rules, "\n") {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			code = append(code, strings.Split(line, "annotations:")[0])
		}
	}
	for _, name := range unknownMetrics(strings.Join(code, "\n")) {
		if name != "postrider_late" {
			t.Errorf("the rules use %s, which nothing exports", name)
		}
	}
	pages := make(map[string]bool)
	for _, rule := range strings.Split(rules, "      - alert: ")[1:] {
		name, _, _ := strings.Cut(rule, "\n")
		url := runbookURLs.FindStringSubmatch(rule)
		if url == nil {
			t.Errorf("%s has no runbook", name)
			continue
		}
		pages[url[1]] = true
		if page, err := os.ReadFile(filepath.Join("..", url[1])); err != nil || !regexp.MustCompile(`\nAlerts: .*\b`+name+`\b`).Match(page) {
			t.Errorf("%s: its runbook %s does not name it: %v", name, url[1], err)
		}
		if !strings.Contains(overview, "| "+name+" |") {
			t.Errorf("%s has no row in docs/operations/alerts.md", name)
		}
		if !regexp.MustCompile(`alertname: ` + name + `\n\s+exp_alerts:\n`).MatchString(tests) {
			t.Errorf("%s fires in no test", name)
		}
		if !regexp.MustCompile(`alertname: ` + name + `\n\s+exp_alerts: \[\]\n`).MatchString(tests) {
			t.Errorf("%s is not silent in any test", name)
		}
	}
	files, err := filepath.Glob("../docs/operations/runbooks/*.md")
	must(t, err)
	for _, file := range files {
		if name := strings.TrimPrefix(file, "../"); !pages[name] {
			t.Errorf("%s is the runbook of no alert", name)
		}
		for _, section := range []string{"What it means", "Who is affected", "Look", "Fix"} {
			if !strings.Contains(readFile(t, file), "\n## "+section+"\n") {
				t.Errorf("%s has no section %s", file, section)
			}
		}
	}
	if len(alertNames.FindAllString(rules, -1)) < 17 {
		t.Error("alerts are missing")
	}
}
