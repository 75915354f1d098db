//go:build !race

package shopdemo

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/saga"
)

// The scenarios, the brokers and the virtual time run without the race detector, under which SQLite is many times slower. The goroutines of
// the demo, of relays, consumers and engines meet in the other tests of this package, which run in both ways.

func TestScenarios(t *testing.T) {
	t.Parallel()
	for _, s := range Scenarios {
		t.Run(fmt.Sprint(s.Number), func(t *testing.T) {
			t.Parallel()
			runScenario(t, s, saga.RequestUndos)
		})
		if s.Number == 2 || s.Number == 5 || s.Number == 6 { // something is undone
			t.Run(fmt.Sprint(s.Number, " with services that undo by themselves"), func(t *testing.T) {
				t.Parallel()
				runScenario(t, s, saga.Observe)
			})
		}
	}
}

func runScenario(t *testing.T, s Scenario, compensate saga.Compensation) {
	t.Helper()
	var out bytes.Buffer
	cfg := testConfig(t, &out)
	cfg.Compensate = compensate
	switch {
	case s.Number == 6:
		cfg.Limits.StepTimeout = 2 * time.Second
	case s.processes:
		cfg.For = 15 * time.Second
	}
	err := RunScenario(t.Context(), cfg, s.Number)
	t.Log(out.String())
	if err != nil {
		t.Error(err)
	}
	if !strings.Contains(out.String(), "ledger exact") || strings.Contains(out.String(), "NO  ") {
		t.Error("it does not say that the ledger is exact")
	}
}
