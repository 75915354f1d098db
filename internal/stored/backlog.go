package stored

import "github.com/postrider/postrider/store"

// Share is the partition of a cursor, in which undelivered messages are counted up to Limit.
type Share struct {
	Cursor int // its index
	Limit  int64
}

// CountBacklogs counts the undelivered messages of relays; consumers have none. count counts those of some partitions, each up to its
// limit, and sets Undelivered.
//
// However long the backlog and however many partitions a relay has, each round reads little more than store.CountLimit of its messages:
// its partitions share the limit. Those that reach their share are counted again if the others have left enough of it. So the count of a
// relay is exact up to store.CountLimit, and those of its partitions are exact whenever that of the relay is.
func CountBacklogs(cursors []CursorRow, count func([]Share) error) error {
	counted := make([]bool, len(cursors))
	for {
		shares := share(cursors, counted)
		if len(shares) == 0 {
			return nil
		}
		if err := count(shares); err != nil {
			return err
		}
		for _, s := range shares {
			c := &cursors[s.Cursor]
			if c.More = c.Undelivered >= s.Limit; c.More {
				c.Undelivered = s.Limit - 1
			}
			counted[s.Cursor] = true
		}
	}
}

// share divides the limit of each relay among its partitions with more messages than were counted, without what the others have. It leaves
// out partitions of which enough were counted.
func share(cursors []CursorRow, counted []bool) (out []Share) {
	type limit struct{ left, partitions int64 }
	of := make(map[string]limit)
	for i, c := range cursors {
		l, known := of[c.Relay]
		if !known {
			l.left = store.CountLimit + 1
		}
		if counted[i] && !c.More {
			l.left -= c.Undelivered
		} else {
			l.partitions++
		}
		of[c.Relay] = l
	}
	for i, c := range cursors {
		if c.Kind == store.KindConsumer || counted[i] && !c.More {
			continue
		}
		l := of[c.Relay]
		if n := (l.left + l.partitions - 1) / l.partitions; !counted[i] || n > c.Undelivered+1 {
			out = append(out, Share{i, n})
		}
	}
	return out
}
