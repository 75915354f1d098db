package telemetry_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/store/memory"
	"github.com/postrider/postrider/telemetry"
)

var prefixCommand = regexp.MustCompile(`(?m)^sed -i '(s/postrider_/orders_/g)' .*$`)

// TestPrefix: with another prefix, no metric has the old one, and the command on the page changes rules, their tests and dashboards so that
// they fit: it renames every metric, and nothing else, so that the tests of the rules, which take long, need not run again.
func TestPrefix(t *testing.T) {
	t.Parallel()
	w := newWorld(t, telemetry.Config{Prefix: "orders"})
	w.Relay(telemetry.RelayOf{Store: "main", Relay: "r"})
	w.Outbox("main")
	defer w.WatchStore(telemetry.StoreOf{Name: "main", System: "memory", Store: memory.New(memory.Config{})})()
	lines := w.scrape()
	if w.series() != 0 || !slices.Contains(lines, `orders_store_up{store="main",system="memory"} 1`) {
		t.Errorf("with the prefix orders:\n%s", strings.Join(lines, "\n"))
	}

	dir := t.TempDir()
	files := append(slices.Clone(rulesTests), rulesFile, "../deploy/grafana/postrider-relay.json")
	for _, file := range files {
		must(t, os.WriteFile(filepath.Join(dir, filepath.Base(file)), []byte(readFile(t, file)), 0o600))
	}
	command := prefixCommand.FindString(readFile(t, page))
	shell := exec.CommandContext(t.Context(), "sh", "-c", command)
	shell.Dir = dir
	if out, err := shell.CombinedOutput(); err != nil || command == "" {
		t.Fatalf("%q: %v\n%s", command, err, out)
	}
	for _, file := range files {
		text := readFile(t, filepath.Join(dir, filepath.Base(file)))
		if strings.Contains(text, "postrider_") || !strings.Contains(text, "orders_") {
			t.Errorf("%s has metrics with the prefix postrider", file)
		}
		if strings.ReplaceAll(text, "orders_", "postrider_") != readFile(t, file) {
			t.Errorf("%s differs from what was shipped by more than the prefix", file)
		}
	}
	check := exec.CommandContext(t.Context(), servertest.Get(t, servertest.PromtoolBin), "check", "rules", filepath.Join(dir, filepath.Base(rulesFile)))
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}

	for _, prefix := range []string{"Orders", "1st", "a-b", "a.b", "ä", strings.Repeat("a", 65)} {
		if _, err := telemetry.New(telemetry.Config{Meter: sdkmetric.NewMeterProvider(), Prefix: prefix}); err == nil {
			t.Errorf("the prefix %q is accepted", prefix)
		}
	}
}
