package stored

import (
	"math"

	"github.com/postrider/postrider/store"
)

// HeldLimit is how many held keys of a partition to read, to return maxHeld, 0 for all, and to know whether there are more.
func HeldLimit(maxHeld int) int64 {
	if maxHeld == 0 {
		return math.MaxInt64
	}
	return int64(maxHeld) + 1
}

// CutHeld removes the keys beyond maxHeld.
func CutHeld(p *store.ParkedState, maxHeld int) {
	if p.More = maxHeld > 0 && len(p.Keys) > maxHeld; p.More {
		p.Keys = p.Keys[:maxHeld]
	}
}
