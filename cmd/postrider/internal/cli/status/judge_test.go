package status

import (
	"fmt"
	"strings"
	"testing"

	"github.com/postrider/postrider/store"
)

// TestStatusLimitsOfManyDeadLetters: a status counts up to 10,000.
func TestStatusLimitsOfManyDeadLetters(t *testing.T) {
	t.Parallel()
	many := store.Count{N: store.CountLimit, AtLeast: true}
	judged := func(limit int64, c store.Count) string {
		o := statusOptions{maxDead: limit, maxHeld: limit, given: func(flag string) bool { return flag == "max-dead" || flag == "max-held" }}
		return fmt.Sprint(o.judge(store.Status{Relays: []store.RelayStatus{{Name: "r", Dead: c, Held: c}}}, nil, 0))
	}
	for _, limit := range []int64{store.CountLimit - 1, store.CountLimit} {
		for _, want := range []string{"relay r: 10,000+ dead letters, more than ", "relay r: 10,000+ held keys, more than "} {
			if got := judged(limit, many); !strings.Contains(got, want) {
				t.Errorf("%q is missing in: %s", want, got)
			}
		}
	}
	if got := judged(store.CountLimit, store.Count{N: store.CountLimit}); got != "<nil>" {
		t.Errorf("10,000 are above 10,000: %s", got)
	}
	for _, o := range []statusOptions{{maxDead: 10_001}, {maxHeld: 20_000}} {
		if got := fmt.Sprint(o.check()); !strings.Contains(got, "--max-dead and --max-held go up to 10,000") {
			t.Errorf("refused with: %s", got)
		}
	}
}
