package relay

import (
	"cmp"
	"maps"
	"slices"
)

// share returns how many of total partitions an owner must acquire or hand over, so that everyone gets floor(total/alive) or
// one more. holdings is the number of partitions of each owner that has any.
func share(total, alive int, holdings map[string]int, self string) (want, surplus int) {
	alive = max(alive, 1)
	low, high := total/alive, (total+alive-1)/alive
	mine := holdings[self]
	switch {
	case mine > high:
		return 0, mine - high
	case mine <= low || high == low:
		return high - mine, 0
	}
	// The share is not whole and this owner has the larger part. Owners with the most hand one over to those with too few;
	// every owner calculates the same, so exactly as many do.
	lacking := 0
	owners := slices.Collect(maps.Keys(holdings))
	for _, o := range owners {
		lacking += max(low-holdings[o], 0)
	}
	lacking += (alive - min(len(owners), alive)) * low
	held := 0
	for _, n := range holdings {
		held += n
	}
	lacking -= total - held // free partitions go to them first
	slices.SortFunc(owners, func(a, b string) int {
		return cmp.Or(cmp.Compare(holdings[b], holdings[a]), cmp.Compare(a, b))
	})
	if at := slices.Index(owners, self); at < lacking {
		return 0, 1
	}
	return 0, 0
}
