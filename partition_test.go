package postrider

import (
	"fmt"
	"testing"
)

// Other languages and SQL compute partitions too: these values must never change.
func TestPartitionOfIsFixed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		key, id string
		n, want int
	}{
		{"order/42", "x", 8, 3},
		{"", "order/42", 8, 3},
		{"order/42", "", 7, 2},
		{"größe", "", 8, 6},
		{"größe", "", 7, 0}, // the sum's highest bit is set
		{"", "", 8, 1},
		{"order/42", "", 1, 0},
	} {
		if got := PartitionOf(c.key, c.id, c.n); got != c.want {
			t.Errorf("PartitionOf(%q, %q, %d) = %d, want %d", c.key, c.id, c.n, got, c.want)
		}
	}
}

func TestPartitionOfSpreads(t *testing.T) {
	t.Parallel()
	var count [8]int
	for i := range 8000 {
		count[PartitionOf(fmt.Sprint("order/", i), "", 8)]++
	}
	for p, n := range count {
		if n < 800 || n > 1200 {
			t.Errorf("partition %d has %d of 8000 keys", p, n)
		}
	}
}
