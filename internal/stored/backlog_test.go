package stored

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/postrider/postrider/store"
)

// TestCountBacklogs: the backlog of a relay is exact up to the limit, and so are those of its partitions then; beyond it they are what was
// counted at least. No round reads much more than the limit for a relay.
func TestCountBacklogs(t *testing.T) {
	t.Parallel()
	cases := [][]int64{
		{0}, {store.CountLimit}, {store.CountLimit + 1}, {1 << 40, 0, 0, 0, 0, 0, 0, 0}, {9_000, 0, 0, 0, 0, 0, 0, 0}, {9_000, 1_000, 1, 0},
		{1_900, 1_900, 1_900, 1_900, 1_900, 0, 0, 0}, {5_000, 5_000}, {5_000, 5_001}, {1 << 40, 1 << 40, 1 << 40, 1 << 40, 1 << 40, 1 << 40, 1 << 40, 1 << 40},
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		c := make([]int64, 1+random.IntN(20))
		for i := range c {
			c[i] = random.Int64N(1 << random.IntN(16))
		}
		cases = append(cases, c)
	}
	for _, held := range cases {
		// Another relay is counted at the same time, and a consumer, which has no backlog.
		rows := []CursorRow{{Relay: "other", Kind: store.KindRelay}, {Relay: "consumer", Kind: store.KindConsumer}}
		sum := int64(0)
		for i, n := range held {
			rows = append(rows, CursorRow{Relay: "r", Kind: store.KindRelay, PartitionStatus: store.PartitionStatus{Partition: i}})
			sum += n
		}
		if err := CountBacklogs(rows, func(shares []Share) error {
			read := int64(0)
			for _, s := range shares {
				c := &rows[s.Cursor]
				switch c.Relay {
				case "r":
					c.Undelivered = min(s.Limit, held[c.Partition])
					read += c.Undelivered
				case "consumer":
					return fmt.Errorf("the consumer is counted")
				}
			}
			if read > store.CountLimit+1+int64(len(held)) {
				return fmt.Errorf("one round reads %d", read)
			}
			return nil
		}); err != nil {
			t.Fatalf("%v: %v", held, err)
		}
		r := StatusRows{Relays: []RelayRow{{Relay: "r"}}, Cursors: rows}.Status().Relays[0]
		if want := Count(sum); r.Backlog != want {
			t.Errorf("%v count as %+v, want %+v", held, r.Backlog, want)
		}
		for i, p := range r.Partitions {
			if exact := !r.Backlog.AtLeast; exact && p.Backlog != (store.Count{N: held[i]}) ||
				p.Backlog.N > held[i] || !p.Backlog.AtLeast && p.Backlog.N != held[i] || p.Backlog.AtLeast && p.Backlog.N == held[i] {
				t.Errorf("%v: partition %d counts as %+v", held, i, p.Backlog)
			}
		}
	}
}
