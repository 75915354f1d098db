package schedule

import (
	"os"
	"testing"
	"time"
)

// config returns the configuration of a scenario: everything fits into memory, and slow work is due again after a while.
func config(change func(*Config)) Config {
	c := Config{
		TxBatch: 2, TakeBytes: 100, MaxHeld: 100, ParkAfter: time.Minute, LeaseTTL: time.Minute,
		Fresh: Budget{MaxMessages: 100, MaxBytes: 100}, Parked: Budget{MaxMessages: 100, MaxBytes: 100},
	}
	if change != nil {
		change(&c)
	}
	return c
}

func transactions(change func(*Config)) Config {
	c := config(change)
	c.Transactions = true
	return c
}

var (
	inOrder = []int64{1, 2, 3, 4, 5, 6}
	late    = []int64{1, 4, 2, 3} // messages 2 and 3 are committed after message 4
)

// scenarios are small cases of everything that can happen. Those that are large run for minutes with the race detector, and
// only in torture runs.
var scenarios = map[string]*scenario{
	"two keys of three messages": {
		cfg: config(nil), keys: []string{"a", "b", "a", "b", "a", "b"}, commits: inOrder, visible: []int{6},
		calls: 2, room: 1, failures: 1, large: true,
	},
	"two keys of two messages": {
		cfg: config(nil), keys: []string{"a", "b", "a", "b"}, commits: inOrder, visible: []int{4},
		calls: 2, room: 2, failures: 1,
	},
	"lost": {
		cfg: config(nil), keys: []string{"a", "b", "a"}, commits: inOrder, visible: []int{3},
		calls: 2, room: 1, failures: 1, losses: 1,
	},
	"lost with others in the call": {
		cfg: config(nil), keys: []string{"a", "b", "a"}, commits: inOrder, visible: []int{3},
		calls: 1, room: 3, failures: 1, losses: 1, large: true,
	},
	"committed late": {
		cfg: config(nil), keys: []string{"a", "b", "a", "c"}, commits: late, visible: []int{2, 4},
		calls: 1, room: 2, failures: 1,
	},
	"committed late and slow": {
		cfg: config(nil), keys: []string{"a", "b", "a", "c"}, commits: late, visible: []int{2, 4},
		calls: 1, room: 1, slow: 1,
	},
	"committed late and left": {
		cfg: config(nil), keys: []string{"", "", "", ""}, commits: late, visible: []int{2, 4},
		calls: 1, room: 2, leaves: 1,
	},
	"committed late and lost": {
		cfg: config(nil), keys: []string{"a", "b", "a", "c"}, commits: late, visible: []int{2, 4},
		calls: 1, room: 2, failures: 1, losses: 1, leaves: 1, large: true,
	},
	"held": {
		cfg: config(func(c *Config) { c.HoldOnDead = true }), keys: []string{"a", "b", "a"}, commits: inOrder, visible: []int{3},
		calls: 2, room: 2, failures: 2, decisions: 1,
	},
	"held and lost": {
		cfg: config(func(c *Config) { c.HoldOnDead = true }), keys: []string{"a", "a"}, commits: inOrder, visible: []int{2},
		calls: 1, room: 2, failures: 2, decisions: 1, losses: 1,
	},
	"more held keys than memory": {
		cfg: config(func(c *Config) { c.MaxHeld, c.Unloading = 1, func() {} }), keys: []string{"a", "b", "a"},
		commits: inOrder, visible: []int{2, 3}, calls: 1, room: 1, failures: 2,
	},
	"more held keys than a lease brings": {
		cfg: config(func(c *Config) { c.MaxHeld, c.Unloading = 1, func() {} }), keys: []string{"a", "b", "b"},
		commits: inOrder, visible: []int{2, 3}, calls: 1, room: 1, failures: 2, losses: 1,
	},
	"more held keys than a lease brings, decisions": {
		cfg: config(func(c *Config) { c.HoldOnDead, c.MaxHeld, c.Unloading = true, 1, func() {} }), keys: []string{"a", "b", "b"},
		commits: inOrder, visible: []int{2, 3}, calls: 1, room: 1, failures: 2, losses: 1, decisions: 1, large: true,
	},
	"slow": {
		cfg: config(nil), keys: []string{"a", "", "a"}, commits: inOrder, visible: []int{3}, delayed: map[int64]bool{2: true},
		calls: 2, room: 1, failures: 1, slow: 1,
	},
	"slow and lost": {
		cfg: config(nil), keys: []string{"a", "a"}, commits: inOrder, visible: []int{2},
		calls: 2, room: 1, slow: 2, losses: 1,
	},
	"unfinished": {
		cfg: config(nil), keys: []string{"a", "a", "b"}, commits: inOrder, visible: []int{3},
		calls: 2, room: 3, failures: 1, continuations: 1,
	},
	"unfinished and lost": {
		cfg: config(nil), keys: []string{"a", "a"}, commits: inOrder, visible: []int{2},
		calls: 2, room: 2, losses: 1, continuations: 2,
	},
	"unfinished and slow": {
		cfg: config(nil), keys: []string{"a", "", "a"}, commits: inOrder, visible: []int{3}, delayed: map[int64]bool{2: true},
		calls: 2, room: 2, slow: 1, continuations: 2,
	},
	"unfinished and left": {
		cfg: config(nil), keys: []string{"a", "", "a"}, commits: inOrder, visible: []int{3},
		calls: 1, room: 3, unattempted: 1, leaves: 1, continuations: 1,
	},
	"unfinished, decisions": {
		cfg: config(func(c *Config) { c.HoldOnDead = true }), keys: []string{"a", "a"}, commits: inOrder, visible: []int{2},
		calls: 1, room: 2, failures: 1, decisions: 1, continuations: 2,
	},
	"left": {
		cfg: config(nil), keys: []string{"a", "", "a"}, commits: inOrder, visible: []int{3},
		calls: 2, room: 2, failures: 1, unattempted: 1, leaves: 1,
	},
	"transactions": {
		cfg: transactions(nil), keys: []string{"a", "b", "a"}, commits: inOrder, visible: []int{2, 3},
		calls: 2, room: 1, failures: 1, losses: 1,
	},
	"transactions, more held keys than a lease brings": {
		cfg: transactions(func(c *Config) { c.MaxHeld, c.Unloading = 1, func() {} }), keys: []string{"a", "b", "b"},
		commits: inOrder, visible: []int{2, 3}, calls: 1, room: 1, failures: 2, losses: 1,
	},
	"transactions, delayed": {
		cfg: transactions(nil), keys: []string{"a", "b", "a"}, commits: inOrder, visible: []int{2, 3}, delayed: map[int64]bool{2: true},
		calls: 2, room: 1, failures: 1, losses: 1,
	},
	"transactions, delayed and held": {
		cfg: transactions(func(c *Config) { c.HoldOnDead = true }), keys: []string{"a", "a", "b"}, commits: inOrder, visible: []int{3},
		delayed: map[int64]bool{2: true}, calls: 2, room: 1, failures: 1, decisions: 1,
	},
	"transactions, delayed and committed late": {
		cfg: transactions(nil), keys: []string{"a", "b", "a", "c"}, commits: late, visible: []int{2, 4}, delayed: map[int64]bool{3: true, 4: true},
		calls: 2, room: 1, failures: 1, leaves: 1,
	},
	"transactions, held": {
		cfg: transactions(func(c *Config) { c.HoldOnDead = true }), keys: []string{"a", "b", "a"}, commits: inOrder, visible: []int{3},
		calls: 2, room: 1, failures: 1, decisions: 1,
	},
	"transactions, committed late": {
		cfg: transactions(nil), keys: []string{"a", "b", "a", "c"}, commits: late, visible: []int{2, 4},
		calls: 2, room: 1, failures: 1, leaves: 1,
	},
	"transactions, committed late and lost": {
		cfg: transactions(nil), keys: []string{"a", "b", "a", "c"}, commits: late, visible: []int{2, 4},
		calls: 2, room: 1, failures: 1, leaves: 1, losses: 1, large: true,
	},
}

// TestModelOfInterleavings explores every state that each scenario can reach: the order of reads, calls, their outcomes,
// settlements and their answers, lost leases, crashes of the database and operators' decisions. In each state it checks the
// counters, the order of each key, and that the database has everything that would otherwise be lost; and that the work comes
// to its end from there (see world.settleDown).
func TestModelOfInterleavings(t *testing.T) {
	t.Parallel()
	for name, sc := range scenarios {
		if sc.large && os.Getenv("POSTRIDER_TORTURE") == "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			explore(t, sc)
		})
	}
}
