//go:build !race

package shopdemo

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

// The scenarios, the brokers and the virtual time run without the race detector, under which SQLite is many times slower. The goroutines of
// the demo, of relays, consumers and engines meet in the other tests of this package, which run in both ways.

func TestScenarios(t *testing.T) {
	t.Parallel()
	for _, s := range Scenarios {
		t.Run(fmt.Sprint(s.Number), func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			cfg := testConfig(t, &out)
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
		})
	}
}
