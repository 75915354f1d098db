// Package storetest tests every store against the same contract: that of store.Outbox, store.Relay,
// store.Maintainer, store.StatusReader, store.Administrator and store.Records, and the guarantees of a relay
// over the store.
//
// A store's test says how to open a database and what the store cannot do, and runs the suite:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, storetest.Features{}, storetest.Harness[pgx.Tx]{Open: open, Reopen: reopen, …})
//	}
//
// Every test opens its own database, and tests run in parallel.
package storetest

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store"
)

// Store is everything that a store offers.
type Store[Tx any] interface {
	operations
	store.Outbox[Tx]
}

// operations is the part of a store that does not depend on the type of its transactions.
type operations interface {
	store.Relay
	store.Maintainer
	store.StatusReader
	store.Administrator
}

// Harness opens databases and does what the stores' interfaces do not cover.
type Harness[Tx any] struct {
	// Open returns a store on a new, empty database whose outbox has this many partitions. It leaves closing to t.Cleanup and
	// allows at least ten open transactions at a time, if the database has more than one writer.
	Open func(t testing.TB, partitions int) Store[Tx]
	// Reopen returns another store on the database of a store that Open returned, as another process would open it.
	Reopen func(t testing.TB, s Store[Tx]) Store[Tx]
	// Savepoint and RollbackTo use the database's savepoints. The names are plain identifiers.
	Savepoint, RollbackTo func(ctx context.Context, tx Tx, name string) error
	// InsertUndecodable writes a row that cannot be read back as a message, with the ID, type, topic and key of m.
	InsertUndecodable func(ctx context.Context, s Store[Tx], tx Tx, m *postrider.Message) error
}

// Features says what a backend cannot do, each with the reason, which skipped tests show. With the zero value it can do
// everything.
type Features struct {
	// Bubble runs each test in a testing/synctest bubble. The store's clock must be time.Now, and it must not wait for a
	// network or another process.
	Bubble bool
	// NoTables says that the store has no tables whose size it could report.
	NoTables bool
	// OneWriter is why only one transaction can write at a time, so that none commits late.
	OneWriter string
	// CoarseRetention is why delivered messages past retention may stay for a while.
	CoarseRetention string
	// Histories is how many random histories the model test runs. Default: 25.
	Histories int
	// Again is for another way to access a database that has passed the whole suite: only the tests run that together execute every
	// statement of a store, and large or random ones do a fraction.
	Again bool
	// Statements, if not nil, checks that these tests do so. The harness tells it what is executed.
	Statements *Statements
}

// group is a named group of tests.
type group struct {
	name  string
	tests []test
}

// contractTests call the store; promiseTests run relays over it.
var (
	contractTests = []group{
		{"Transactions", transactionTests},
		{"Fetch", fetchTests},
		{"LateCommits", lateTests},
		{"Leases", leaseTests},
		{"Filters", filterTests},
		{"Settle", settleTests},
		{"SettleAgain", againTests},
		{"Due", dueTests},
		{"HeldKeys", heldTests},
		{"ParkedMessages", parkedTests},
		{"DeadLetters", deadTests},
		{"Retention", retentionTests},
		{"Status", statusTests},
		{"Administration", adminTests},
		{"Attempts", attemptTests},
		{"Replay", replayTests},
		{"Purge", purgeTests},
		{"Erasure", eraseTests},
		{"Keep", keepTests},
	}
	promiseTests = []group{
		{"Order", orderTests},
		{"Outcomes", outcomeTests},
		{"ReplayOrder", replayPromises},
		{"Rows", rowTests},
		{"Processes", processTests},
		{"Throughput", throughputTests},
		{"Broker", brokerTests},
	}
)

// longGroups are about processes that die, load and brokers that are slow.
var longGroups = []string{"ReplayOrder", "Processes", "Throughput", "Broker"}

// notInShort skips under go test -short what takes long in real time.
func (s *suite) notInShort(t *testing.T) {
	t.Helper()
	if testing.Short() && !s.features.Bubble {
		t.Skip("left out by -short, except in virtual time")
	}
}

// Run runs the suite.
func Run[Tx any](t *testing.T, f Features, h Harness[Tx]) {
	newSuite(f, h).runGroups(t, contractTests)
	f.Statements = nil // relays execute what they need
	newSuite(f, h).runGroups(t, promiseTests)
}

// Contract is Run with Features.Again, without relays. whole names the groups of tests that are run as a whole, because the other way
// changes what they are about.
func Contract[Tx any](t *testing.T, f Features, h Harness[Tx], whole ...string) {
	f.Again = true
	s := newSuite(f, h)
	for _, name := range whole {
		if !slices.ContainsFunc(contractTests, func(g group) bool { return g.name == name }) {
			t.Fatalf("there is no group %s", name)
		}
	}
	s.runGroups(t, contractTests, whole...)
}

func (s *suite) runGroups(t *testing.T, groups []group, whole ...string) {
	s.checkStatements(t)
	for _, group := range groups {
		s.runGroup(t, group, slices.Contains(whole, group.name))
	}
}

func (s *suite) runGroup(t *testing.T, g group, whole bool) {
	t.Run(g.name, func(t *testing.T) {
		t.Parallel()
		if slices.Contains(longGroups, g.name) {
			s.notInShort(t)
		}
		for _, test := range g.tests {
			if s.features.Again && !test.statements && !whole {
				continue
			}
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				s.run(t, test)
			})
		}
	})
}

func newSuite[Tx any](f Features, h Harness[Tx]) *suite {
	s := &suite{features: f}
	s.open = func(t testing.TB, partitions int) database {
		began := time.Now()
		d := erase(t, h.Open(t, partitions), h)
		for took := int64(time.Since(began)); ; {
			if slowest := s.slowest.Load(); took <= slowest || s.slowest.CompareAndSwap(slowest, took) {
				return d
			}
		}
	}
	return s
}

// suite is a backend under test.
type suite struct {
	features Features
	open     func(t testing.TB, partitions int) database
	slowest  atomic.Int64 // nanoseconds that opening a database took
}

// test is one test of the suite.
type test struct {
	name string
	run  func(e *env)
	// late: the test needs several transactions open at a time.
	late bool
	// exact: the test needs delivered messages to be dropped as soon as retention allows.
	exact bool
	// partitions is the number of partitions of the outbox; 0 means 4.
	partitions int
	// statements marks the tests that together execute every statement of a store.
	statements bool
}

func (s *suite) run(t *testing.T, test test) {
	if reason := s.features.OneWriter; test.late && reason != "" {
		t.Skip(reason)
	}
	if reason := s.features.CoarseRetention; test.exact && reason != "" {
		t.Skip(reason)
	}
	if test.statements && s.features.Statements != nil {
		s.features.Statements.mark(t)
	}
	partitions := test.partitions
	if partitions == 0 {
		partitions = 4
	}
	body := func(t *testing.T) {
		test.run(newEnv(t, t.Context(), s, s.open(t, partitions), partitions))
	}
	if s.features.Bubble {
		synctest.Test(t, body)
		return
	}
	body(t)
}

func newEnv(t *testing.T, ctx context.Context, s *suite, d database, partitions int) *env {
	return &env{t: t, ctx: ctx, database: d, Store: deadletter.New(d), suite: s, partitions: partitions}
}

// must ends the test on an error.
func (e *env) must(err error, doing string) {
	e.t.Helper()
	if err != nil {
		e.t.Fatalf("%s: %v", doing, err)
	}
}

// database is a store without the type of its transactions.
type database interface {
	operations
	Wake(topics ...string)
	begin(ctx context.Context) (transaction, error)
	// insertNowhere inserts into the zero value of the transactions' type.
	insertNowhere(ctx context.Context, m *postrider.Message) error
	// inTx publishes like an application, through an outbox.
	inTx(ctx context.Context, do func(ctx context.Context, publish publishFunc) error) ([]string, error)
	// publishedInTx is inTx with one message. It returns what the transaction had published before the commit.
	publishedInTx(ctx context.Context, m *postrider.Message) ([]*postrider.Message, error)
	reopen(t testing.TB) database
	// listener returns the store if other processes can publish in it, otherwise nil.
	listener() store.Listener
}

// publishFunc publishes in a transaction.
type publishFunc func(msgs ...*postrider.Message) error

// transaction is an open transaction.
type transaction interface {
	insert(ctx context.Context, msgs ...*postrider.Message) error
	insertUndecodable(ctx context.Context, m *postrider.Message) error
	written(ctx context.Context, ids ...string) ([]string, error)
	published(ctx context.Context) ([]*postrider.Message, error)
	savepoint(ctx context.Context, name string) error
	rollbackTo(ctx context.Context, name string) error
	commit(ctx context.Context) error
	rollback(ctx context.Context) error
}

// erased turns a Store into a database.
type erased[Tx any] struct {
	Store[Tx]
	h      Harness[Tx]
	outbox *outbox.Outbox[Tx]
}

func erase[Tx any](t testing.TB, s Store[Tx], h Harness[Tx]) database {
	o, err := outbox.New(s, outbox.Config{Source: "storetest"})
	if err != nil {
		t.Fatal(err)
	}
	return &erased[Tx]{Store: s, h: h, outbox: o}
}

func (d *erased[Tx]) inTx(ctx context.Context, do func(context.Context, publishFunc) error) ([]string, error) {
	return d.outbox.InTx(ctx, func(ctx context.Context, tx Tx) error {
		return do(ctx, func(msgs ...*postrider.Message) error {
			_, err := d.outbox.Publish(ctx, tx, msgs...)
			return err
		})
	})
}

func (d *erased[Tx]) publishedInTx(ctx context.Context, m *postrider.Message) (out []*postrider.Message, err error) {
	_, err = d.outbox.InTx(ctx, func(ctx context.Context, tx Tx) error {
		if _, err := d.outbox.Publish(ctx, tx, m); err != nil {
			return err
		}
		out, err = d.outbox.Published(ctx, tx)
		return err
	})
	return out, err
}

func (d *erased[Tx]) begin(ctx context.Context) (transaction, error) {
	tx, err := d.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &erasedTx[Tx]{d: d, tx: tx}, nil
}

func (d *erased[Tx]) insertNowhere(ctx context.Context, m *postrider.Message) error {
	var none Tx
	return d.Insert(ctx, none, []*postrider.Message{m})
}

func (d *erased[Tx]) reopen(t testing.TB) database {
	return erase(t, d.h.Reopen(t, d.Store), d.h)
}

func (d *erased[Tx]) listener() store.Listener {
	l, _ := d.Store.(store.Listener)
	return l
}

// erasedTx turns a Tx into a transaction.
type erasedTx[Tx any] struct {
	d  *erased[Tx]
	tx Tx
}

func (x *erasedTx[Tx]) insert(ctx context.Context, msgs ...*postrider.Message) error {
	return x.d.Insert(ctx, x.tx, msgs)
}

func (x *erasedTx[Tx]) insertUndecodable(ctx context.Context, m *postrider.Message) error {
	return x.d.h.InsertUndecodable(ctx, x.d.Store, x.tx, m)
}

func (x *erasedTx[Tx]) written(ctx context.Context, ids ...string) ([]string, error) {
	return x.d.Written(ctx, x.tx, ids)
}

func (x *erasedTx[Tx]) published(ctx context.Context) ([]*postrider.Message, error) {
	return x.d.Published(ctx, x.tx)
}

func (x *erasedTx[Tx]) savepoint(ctx context.Context, name string) error {
	return x.d.h.Savepoint(ctx, x.tx, name)
}

func (x *erasedTx[Tx]) rollbackTo(ctx context.Context, name string) error {
	return x.d.h.RollbackTo(ctx, x.tx, name)
}

func (x *erasedTx[Tx]) commit(ctx context.Context) error { return x.d.Commit(ctx, x.tx) }

func (x *erasedTx[Tx]) rollback(ctx context.Context) error { return x.d.Rollback(ctx, x.tx) }
