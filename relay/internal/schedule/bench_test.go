package schedule

import (
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// BenchmarkSchedule measures what a message costs from Read until its outcome is recorded, with each discipline.
func BenchmarkSchedule(b *testing.B) {
	for _, bc := range []struct {
		name string
		cfg  Config
		keys int // 0: messages without a key
	}{
		{"no key", config(nil), 0},
		{"16 keys", config(nil), 16},
		{"1000 keys", config(nil), 1000},
		{"transactions", transactions(func(c *Config) { c.TxBatch = 16 }), 16},
	} {
		b.Run(bc.name, func(b *testing.B) {
			bc.cfg.SettleBatch, bc.cfg.TakeBytes = 1000, 1000
			benchmark(b, bc.cfg, bc.keys)
		})
	}
}

func benchmark(b *testing.B, cfg Config, keys int) {
	const size = 1000 // messages in a batch that is read
	now := time.Unix(0, 0)
	s := New[int64](cfg)
	p := s.Hold(&store.Lease{})
	p.Until = now.Add(time.Hour)
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprint("key-", i)
	}
	read := &store.Batch{Entries: make([]store.Entry, size)}
	for i := range read.Entries {
		read.Entries[i].Message = &postrider.Message{}
	}
	lookup := s.BeginLookup()
	taken := make([]*Item[int64], 0, 16)
	b.ReportAllocs()
	for n := int64(0); n < int64(b.N); n += size {
		for i := range read.Entries {
			read.Entries[i].Message.Sequence = n + int64(i) + 1
		}
		read.Next = store.Cursor{Position: n + size}
		ticket := p.Announce(read, n)
		items := make([]Item[int64], size)
		for i := range items {
			it := &items[i]
			it.Sequence, it.Size = n+int64(i)+1, 1
			if keys > 0 {
				it.Key = names[i%keys]
			}
			p.Admit(it, ticket+uint64(i), lookup, now)
		}
		for s.Ready() > 0 {
			taken, _ = s.Take(taken[:0], 16, now)
			if cfg.Transactions {
				s.Committed(taken, len(taken), s.Commit(taken), nil, now)
			} else {
				s.Complete(taken, nil)
			}
		}
		if out := p.NextSettlement(now); out != nil {
			p.Confirm(out, nil, now)
		}
	}
	if c := s.Counts(); c != (Counts{}) {
		b.Fatalf("left: %+v", c)
	}
}
