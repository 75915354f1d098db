package schedule

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// TestRandomWalks walks at random through scenarios that are too large to explore: more messages, longer transactions, and everything that can
// happen in each. POSTRIDER_WALKS is the number of walks.
func TestRandomWalks(t *testing.T) {
	t.Parallel()
	walks := uint64(2_000)
	if n, err := strconv.ParseUint(os.Getenv("POSTRIDER_WALKS"), 10, 64); err == nil {
		walks = n
	}
	for seed := range walks {
		if err := walk(rand.New(rand.NewPCG(seed, 0))); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// walk makes up to 60 random steps in a random scenario, after which the work must come to its end.
func walk(random *rand.Rand) (err error) {
	sc := randomScenario(random)
	w := newWorld(sc)
	var steps []action
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
		if err != nil {
			err = fmt.Errorf("%w\nafter %v\nin %+v", err, steps, *sc)
		}
	}()
	for range random.IntN(60) {
		all := w.actions()
		if len(all) == 0 {
			break
		}
		a := all[random.IntN(len(all))]
		steps = append(steps, a)
		w.do(a)
		if w.err == nil {
			w.checkState()
		}
		if w.err != nil {
			return w.err
		}
	}
	w.settleDown()
	return w.err
}

func randomScenario(random *rand.Rand) *scenario {
	n := 4 + random.IntN(5)
	sc := &scenario{
		cfg: config(func(c *Config) {
			c.Transactions, c.TxBatch, c.HoldOnDead = random.IntN(3) > 0, 1+random.IntN(5), random.IntN(3) == 0
			if random.IntN(4) == 0 {
				c.MaxHeld, c.Unloading = 1, func() {}
			}
		}),
		delayed: make(map[int64]bool), calls: 1 + random.IntN(3), room: 1 + random.IntN(3),
		failures: random.IntN(5), unattempted: random.IntN(3), losses: random.IntN(3), slow: random.IntN(2), decisions: random.IntN(3),
		leaves: random.IntN(3), continuations: random.IntN(3),
	}
	for i := range n {
		key := string(rune('a' + random.IntN(3)))
		switch {
		case random.IntN(6) == 0:
			key = ""
		case random.IntN(6) == 0: // not due, so that it may come after others of a key: it has its own
			key = fmt.Sprint("d", i)
			sc.delayed[int64(i+1)] = true
		}
		sc.keys = append(sc.keys, key)
		sc.commits = append(sc.commits, int64(i+1))
	}
	for range random.IntN(4) { // committed late; each key keeps its order
		i := random.IntN(n - 1)
		if a, b := sc.commits[i], sc.commits[i+1]; sc.keys[a-1] != sc.keys[b-1] {
			sc.commits[i], sc.commits[i+1] = b, a
		}
	}
	for visible := 0; visible < n; {
		visible += 1 + random.IntN(n-visible)
		sc.visible = append(sc.visible, visible)
	}
	return sc
}
