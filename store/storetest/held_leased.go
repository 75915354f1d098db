package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/store"
)

// leaseBringsSoManyHeldKeys: as many of each partition as were asked for, and whether there are more.
func leaseBringsSoManyHeldKeys(e *env) {
	const inOne = 3
	w := e.worker("r", "a")
	p := e.partition("order/0")
	var want []string
	for i, n := 0, 0; n < inOne; i++ { // and one in another partition
		key := fmt.Sprint("order/", i)
		if e.partition(key) == p {
			want = append(want, key)
			n++
		} else if i > 1 {
			continue
		}
		w.hold(key, 1, time.Hour)
	}
	slices.Sort(want)
	for _, c := range []struct {
		max, keys int
		more      bool
	}{{1, 1, true}, {inOne - 1, inOne - 1, true}, {inOne, inOne, false}, {inOne + 1, inOne, false}, {0, inOne, false}} {
		e.must(e.Leave(e.ctx, "r", w.owner), "leave")
		leases, err := e.Acquire(e.ctx, "r", w.owner, store.AcquireRequest{Claims: claims(e.allPartitions()...), TTL: longTTL, MaxHeld: c.max})
		e.must(err, "acquire")
		if len(leases) != e.partitions {
			e.t.Fatalf("%d leases, want %d", len(leases), e.partitions)
		}
		for _, l := range leases {
			if l.Partition != p {
				if l.Parked.More {
					e.t.Errorf("partition %d, with %d held keys, has more than %d", l.Partition, len(l.Parked.Keys), c.max)
				}
				continue
			}
			got := l.Parked
			if len(got.Keys) != c.keys || got.More != c.more {
				e.t.Errorf("up to %d keys: the lease has %q, more: %t; want %d, more: %t", c.max, got.Keys, got.More, c.keys, c.more)
			}
			for _, key := range got.Keys {
				if !slices.Contains(want, key) {
					e.t.Errorf("up to %d keys: the lease has %q, which is not held", c.max, key)
				}
			}
		}
	}
}
