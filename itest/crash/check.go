// Package crash makes a third-party client (pgbench) publish in its transactions, kills processes and servers meanwhile,
// and has an independent checker compare the broker's messages with what the database committed.
//
// The checker does not use Postrider's tables. Every transaction of the load increments the counter of an account, writes
// the new value with its transaction ID to a history table and publishes the same as a message with the account as key.
// So the committed history says which messages must exist, which must not, and in which order those of each account must
// be.
package crash

import (
	"fmt"
	"maps"
	"slices"
)

// Fact is one committed step of an account, as a history row and as a message.
type Fact struct {
	Account int64 `json:"account"`
	Counter int64 `json:"counter"`
	// Transaction is the ID of the transaction, which distinguishes a step that was rolled back from the one that
	// replaced it.
	Transaction int64 `json:"transaction"`
}

func (f Fact) String() string {
	return fmt.Sprintf("account %d step %d of transaction %d", f.Account, f.Counter, f.Transaction)
}

// Checker compares the messages in the stream with the committed facts.
type Checker struct {
	seen    map[Fact]bool   // every committed fact, and whether its message has arrived
	highest map[int64]int64 // counter of the last non-duplicate, by account
	missing int
	outcome Outcome
}

// Outcome is the result of the check.
type Outcome struct {
	// Committed counts facts, Received messages.
	Committed, Received int
	// Lost counts facts without a message, Invented messages without a fact, Duplicates repeated messages, and Disordered
	// messages that first arrived after a later step of their account.
	Lost, Invented, Duplicates, Disordered int
	// Examples describes up to ten of the errors.
	Examples []string
}

func (v Outcome) String() string {
	return fmt.Sprintf("%d committed, %d received: lost %d, invented %d, out of order within a key %d, duplicates %d",
		v.Committed, v.Received, v.Lost, v.Invented, v.Disordered, v.Duplicates)
}

// Kept says that no guarantee was broken. Duplicates are allowed.
func (v Outcome) Kept() bool { return v.Lost == 0 && v.Invented == 0 && v.Disordered == 0 }

// NewChecker returns a checker of the committed facts.
func NewChecker(committed []Fact) *Checker {
	c := &Checker{seen: make(map[Fact]bool, len(committed)), highest: map[int64]int64{}}
	for _, f := range committed {
		c.seen[f] = false
	}
	c.missing = len(c.seen)
	c.outcome.Committed = len(c.seen)
	return c
}

// Receive checks the next message of the stream.
func (c *Checker) Receive(f Fact) {
	c.outcome.Received++
	seen, committed := c.seen[f]
	switch {
	case !committed:
		c.outcome.Invented++
		c.example("invented", f)
	case seen:
		c.outcome.Duplicates++
	default:
		c.seen[f] = true
		c.missing--
		if f.Counter < c.highest[f.Account] {
			c.outcome.Disordered++
			c.example(fmt.Sprintf("out of order, after step %d", c.highest[f.Account]), f)
		}
		c.highest[f.Account] = max(c.highest[f.Account], f.Counter)
	}
}

// ReceiveUnreadable records a message that no transaction of the load has published.
func (c *Checker) ReceiveUnreadable(text string) {
	c.outcome.Received++
	c.outcome.Invented++
	c.outcome.Examples = append(c.outcome.Examples, "invented: "+text)
}

// Missing is the number of facts whose message has not arrived yet.
func (c *Checker) Missing() int { return c.missing }

// Outcome returns the result; missing messages count as lost.
func (c *Checker) Outcome() Outcome {
	v := c.outcome
	v.Lost = c.missing
	v.Examples = slices.Clone(v.Examples)
	for f := range maps.Keys(c.seen) {
		if len(v.Examples) >= 10 {
			break
		}
		if !c.seen[f] {
			v.Examples = append(v.Examples, "lost: "+f.String())
		}
	}
	return v
}

func (c *Checker) example(what string, f Fact) {
	if len(c.outcome.Examples) < 10 {
		c.outcome.Examples = append(c.outcome.Examples, what+": "+f.String())
	}
}
