package demo

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// fact is one message in the ledger, committed in the same transaction as its order.
type fact struct {
	// ID is the message's ID, Key its key and N its number within the key: 1, 2, 3, … without gaps, counted in a row that
	// the transaction had locked.
	ID, Key string
	N       int64
}

// checker compares what the consumer receives with what was committed. It is independent of the relay: its only sources
// are the stream and the ledger.
type checker struct {
	mu         sync.Mutex
	seen       map[string]fact
	keys       map[string]*keyState
	forbidden  map[string]bool
	appeared   int64
	duplicates int64
	disorder   []string
}

// keyState is what was received for one key.
type keyState struct {
	highest  int64
	received int64
}

func newChecker() *checker {
	return &checker{seen: map[string]fact{}, keys: map[string]*keyState{}, forbidden: map[string]bool{}}
}

// maxNamed limits how many errors of a kind are listed individually.
const maxNamed = 5

// receive records a message that the consumer has received, in stream order.
func (c *checker) receive(f fact) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, again := c.seen[f.ID]; again {
		c.duplicates++
		return
	}
	c.seen[f.ID] = f
	if c.forbidden[f.ID] {
		c.appeared++
	}
	k := c.keys[f.Key]
	if k == nil {
		k = &keyState{}
		c.keys[f.Key] = k
	}
	k.received++
	if f.N <= k.highest {
		c.disorder = append(c.disorder, fmt.Sprintf("%s number %d came after number %d (message %s)", f.Key, f.N, k.highest, f.ID))
	}
	k.highest = max(k.highest, f.N)
}

// rolledBack records a message whose transaction was rolled back: it must never be received.
func (c *checker) rolledBack(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forbidden[id] = true
	if _, ok := c.seen[id]; ok {
		c.appeared++
	}
}

// tally is what the checker knows while the demo runs.
type tally struct {
	// Received counts messages, Duplicates redeliveries of them.
	Received, Duplicates int64
	// Missing counts messages that were overtaken by a later one of their key and have not arrived yet.
	Missing int64
	// Disorder counts messages that arrived after a later one of their key, Appeared those of rolled-back transactions.
	Disorder, Appeared int64
}

func (c *checker) tally() tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := tally{
		Received: int64(len(c.seen)), Duplicates: c.duplicates, Disorder: int64(len(c.disorder)), Appeared: c.appeared,
	}
	for _, k := range c.keys {
		t.Missing += max(k.highest-k.received, 0)
	}
	return t
}

// Findings is the result of the comparison with the whole ledger. The counts are exact; Named has a few examples.
type Findings struct {
	Committed, Received, Duplicates int64
	// Lost messages were committed, but are not in the dead letters and did not arrive. Invented ones arrived but were
	// never committed. Altered ones arrived with another key or number than was committed. Disorder counts those that
	// arrived after a later one of their key.
	Lost, Invented, Altered, Disorder int64
	// Dead counts messages in the dead letters.
	Dead int64
	// Named lists a few messages of each kind.
	Named []string
}

// Held says whether every guarantee was kept.
func (f Findings) Held() bool { return f.Lost+f.Invented+f.Altered+f.Disorder == 0 }

// compare compares the received messages with the ledger and the dead letters.
func (c *checker) compare(ledger []fact, dead map[string]bool) Findings {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := Findings{
		Committed: int64(len(ledger)), Received: int64(len(c.seen)), Duplicates: c.duplicates, Disorder: int64(len(c.disorder)),
	}
	name := func(n *int64, format string, args ...any) {
		if *n++; *n <= maxNamed {
			f.Named = append(f.Named, fmt.Sprintf(format, args...))
		}
	}
	committed := make(map[string]bool, len(ledger))
	for _, want := range ledger {
		committed[want.ID] = true
		got, ok := c.seen[want.ID]
		switch {
		case !ok && dead[want.ID]:
			f.Dead++
		case !ok:
			name(&f.Lost, "lost: %s number %d (message %s)", want.Key, want.N, want.ID)
		case got != want:
			name(&f.Altered, "altered: %s number %d arrived as %s number %d (message %s)", want.Key, want.N, got.Key, got.N, want.ID)
		}
	}
	for _, got := range slices.SortedFunc(maps.Values(c.seen), func(a, b fact) int { return cmp.Compare(a.ID, b.ID) }) {
		if !committed[got.ID] {
			name(&f.Invented, "invented: %s number %d (message %s)", got.Key, got.N, got.ID)
		}
	}
	for _, text := range c.disorder[:min(len(c.disorder), maxNamed)] {
		f.Named = append(f.Named, "out of order: "+text)
	}
	return f
}
