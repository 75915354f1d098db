package scenariotest

import (
	"os"
	"testing"
	"testing/synctest"
)

// Torture runs the scenarios of races and of commits that fail in the numbers of the acceptance scenarios: 10,000 races, and each fail point
// 100 times; and in memory that of payments that are down, with 13,200 orders. It takes minutes, and runs only with POSTRIDER_TORTURE (make torture).
func Torture[Tx any](t *testing.T, k Kit[Tx]) {
	if os.Getenv("POSTRIDER_TORTURE") == "" {
		t.Skip("POSTRIDER_TORTURE is not set")
	}
	k.torture = true
	run := map[string]func(w *world[Tx]){"A07 timer meets reply": timerMeetsReply[Tx], "A43 fail points": failPoints[Tx]}
	if k.InMemory {
		run["A46 payments down"] = paymentsDown[Tx]
	}
	k.each(t, run)
}

// each runs scenarios, each on a store of its own.
func (k Kit[Tx]) each(t *testing.T, scenarios map[string]func(w *world[Tx])) {
	for name, scenario := range scenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !k.Bubble {
				scenario(newWorld(t, k))
				return
			}
			synctest.Test(t, func(t *testing.T) { scenario(newWorld(t, k)) })
		})
	}
}
