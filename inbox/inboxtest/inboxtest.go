// Package inboxtest tests that consumers over a store keep the guarantees of package inbox: every message is processed
// exactly once, in order per key where the source keeps it, whatever crashes, fails or is redelivered.
//
//	func TestConsumers(t *testing.T) {
//		inboxtest.Run(t, inboxtest.Harness[pgx.Tx]{Open: open})
//	}
package inboxtest

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/postrider/postrider/store"
)

// Store is what a store must implement to be tested with consumers: the inbox, an outbox for the effects, and the
// operators' interfaces.
type Store[Tx any] interface {
	store.Inbox[Tx]
	store.Outbox[Tx]
	store.StatusReader
}

// Harness opens databases.
type Harness[Tx any] struct {
	// Open returns a store on a new, empty database with four partitions that allows at least twenty open transactions,
	// if it has more than one writer. It registers closing with t.Cleanup.
	Open func(t testing.TB) Store[Tx]
	// Bubble runs each test in a testing/synctest bubble. The store's clock must be time.Now, and it must not wait for a
	// network or another process.
	Bubble bool
	// Undo makes the database roll back a whole transaction on its own, as in a deadlock or when the disk is full, so
	// that later statements run outside any transaction, and returns the error of the statement. It is nil if the
	// database never does that.
	Undo func(ctx context.Context, s Store[Tx], tx Tx) error
	// MigrateWatermarks writes the watermarks that an earlier version would have left, oldest first, and migrates the database from
	// that version to the newest. It is nil if the database is never older than the program.
	MigrateWatermarks func(t testing.TB, s Store[Tx], left []Watermark)
	// Again is for another way to access a database on which HandleTx has passed as a whole: only the tests run in which a handler's
	// transaction does everything that it can do, not those that differ in what the relay does on its own connections.
	Again bool
	// Histories is how many random histories Model runs. Default: 20.
	Histories int
}

// Run runs the scenarios.
func Run[Tx any](t *testing.T, h Harness[Tx]) {
	for _, group := range []struct {
		name  string
		tests []scenario[Tx]
	}{
		{"Effect", effectScenarios[Tx]()},
		{"Parking", parkingScenarios[Tx]()},
		{"Faults", faultScenarios[Tx]()},
		{"Log", logScenarios[Tx]()},
		{"Versions", versionScenarios[Tx]()},
		{"Replays", replayScenarios[Tx]()},
		{"Input", inputScenarios[Tx]()},
		{"Life", lifeScenarios[Tx]()},
	} {
		t.Run(group.name, func(t *testing.T) {
			t.Parallel()
			if !slices.Contains([]string{"Effect", "Parking", "Versions"}, group.name) { // the others depend little on the database
				h.notInShort(t)
			}
			for _, s := range group.tests {
				t.Run(s.name, func(t *testing.T) {
					t.Parallel()
					h.run(t, s.run)
				})
			}
		})
	}
}

// notInShort skips under go test -short what takes long in real time.
func (h Harness[Tx]) notInShort(t *testing.T) {
	t.Helper()
	if testing.Short() && !h.Bubble {
		t.Skip("left out by -short, except in virtual time")
	}
}

// scenario is one test.
type scenario[Tx any] struct {
	name string
	run  func(w *world[Tx])
}

func (h Harness[Tx]) run(t *testing.T, f func(w *world[Tx])) {
	body := func(t *testing.T) { f(newWorld(t, h)) }
	if h.Bubble {
		synctest.Test(t, body)
		return
	}
	body(t)
}
