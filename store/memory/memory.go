// Package memory keeps the outbox in memory: for tests, for demos, and as the executable specification of the log that
// store/postgres keeps in tables.
//
// It behaves like PostgreSQL in the points that make an outbox hard. A sequence is assigned when a message is inserted, but the
// message becomes visible when its transaction commits, so sequence order is not commit order. A rolled-back transaction leaves a
// gap. A cursor is a pair of position and snapshot (see cursor.go). Nothing survives the process.
//
// The database's clock is time.Now, to the microsecond; in a testing/synctest bubble it is the bubble's clock.
package memory

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/signal"
	"github.com/postrider/postrider/store"
)

// DefaultPartitions is the default of Config.Partitions.
const DefaultPartitions = 8

// Config configures New.
type Config struct {
	// Partitions is the number of partitions of the outbox. Default: DefaultPartitions.
	Partitions int
	// Fault, if not nil, is called around each operation; op is the name of its method ("Commit", "Fetch", "Settle"). Before the
	// operation, done is false, and an error prevents it. After it took effect, done is true, and an error replaces its result,
	// as when a connection breaks between the commit and the response. A StepRedrive is two operations of this name: it reads the
	// redrive first. Fault is called without a lock held; it may block or call the store.
	Fault func(op string, done bool) error
	// Unsynced is how many of the last settlements CrashLosing can lose. Default: none.
	Unsynced int
}

// Store is an outbox in memory, with everything that relays and operators store about it. It is safe for concurrent use.
type Store struct {
	cfg  Config
	db   *database
	wake signal.Broadcast
	// partitions is the number as of opening, or of this Store's Repartition; relays work with it until they are restarted.
	partitions atomic.Int64
}

var (
	_ store.Relay          = (*Store)(nil)
	_ store.Maintainer     = (*Store)(nil)
	_ store.StatusReader   = (*Store)(nil)
	_ store.Administrator  = (*Store)(nil)
	_ store.Records        = (*Store)(nil)
	_ store.Outbox[*Tx]    = (*Store)(nil)
	_ store.Inbox[*Tx]     = (*Store)(nil)
	_ store.TxSettler[*Tx] = (*Store)(nil)
)

// database is the data that several Stores of one outbox share.
type database struct {
	mu sync.Mutex

	log     []*partitionLog // by partition
	lastSeq int64
	bytes   int64

	// incarnation counts the starts of the database; began is the time of the last one.
	incarnation int
	began       time.Time
	unsynced    []func() // undo the last settlements, oldest first

	nextXID uint64
	active  map[uint64]bool // transactions that wrote and have not ended

	relays     map[string]*relayState
	deadRows   []*deadRow // by number
	lastNumber int64

	redrives    []*store.Redrive // by ID
	lastRedrive int64            // the last ID that StartRedrive assigned

	inboxes    map[string]*inboxState // by consumer
	locks      map[lock]*Tx
	lastParked int64 // the last sequence that Park or DeadLetter assigned

	decisions []*decision // in the order of recording

	attempts map[string][]attemptRow // by message; nil before the first

	sagas *sagas

	records map[recordID]store.Record
}

// New returns an empty outbox.
func New(cfg Config) *Store {
	if cfg.Partitions <= 0 {
		cfg.Partitions = DefaultPartitions
	}
	db := &database{
		incarnation: 1, nextXID: 1, active: make(map[uint64]bool), relays: make(map[string]*relayState),
		inboxes: make(map[string]*inboxState), locks: make(map[lock]*Tx), sagas: newSagas(),
		records: make(map[recordID]store.Record),
	}
	db.log = newLog(cfg.Partitions)
	return open(cfg, db)
}

// Reopen returns another Store on the same data, as another process would open it: it does not receive this one's Wake, and has
// no Fault.
func (s *Store) Reopen() *Store {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	return open(Config{}, s.db)
}

func open(cfg Config, db *database) *Store {
	s := &Store{cfg: cfg, db: db}
	s.partitions.Store(int64(len(db.log)))
	return s
}

// Wake signals the subscribers of this Store.
func (s *Store) Wake(topics ...string) { s.wake.Wake(topics...) }

// Subscribe implements store.Log.
func (s *Store) Subscribe(takes func(topic string) bool) (<-chan struct{}, func()) {
	return s.wake.Subscribe(takes)
}

// Partitions implements store.Leases.
func (s *Store) Partitions(ctx context.Context) (int, error) {
	return do(ctx, s, "Partitions", func(*database) (int, error) { return int(s.partitions.Load()), nil })
}

// do runs one operation, alone and as a whole, with calls of Fault around it. If f is blocked, do runs it again when the blocking
// transaction has ended.
func do[T any](ctx context.Context, s *Store, op string, f func(*database) (T, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if err := s.fault(op, false); err != nil {
		return none, err
	}
	for {
		s.db.mu.Lock()
		out, err := f(s.db)
		b, waits := err.(*blocked)
		if waits {
			err = b.begin()
		}
		if err == nil && !waits {
			s.db.synced(op)
		}
		s.db.mu.Unlock()
		if waits && err == nil {
			if err = b.wait(ctx, s.db); err == nil {
				continue
			}
		}
		if err != nil {
			return none, err
		}
		if err := s.fault(op, true); err != nil {
			return none, err
		}
		return out, nil
	}
}

func (s *Store) fault(op string, done bool) error {
	if s.cfg.Fault == nil {
		return nil
	}
	return s.cfg.Fault(op, done)
}

// relay returns the state of a relay and creates it if there is none.
func (db *database) relay(name string) *relayState {
	r := db.relays[name]
	if r == nil {
		r = &relayState{
			owners: make(map[string]*ownerState), latest: make(map[int64]*deadRow),
			unrouted: make(map[string]*store.UnroutedTopic),
			cursors:  make([]*cursorState, len(db.log)),
		}
		for range db.log {
			r.parked = append(r.parked, newParkedSet())
		}
		for _, l := range db.deadRows { // from before the relay was removed
			if l.Relay == name {
				r.latest[l.Message.Sequence] = l
			}
		}
		db.relays[name] = r
	}
	return r
}

// relayState is what the outbox stores about one relay.
type relayState struct {
	kind    store.Kind // "" before it registered
	owners  map[string]*ownerState
	cursors []*cursorState     // by partition; nil before the relay first asked for a lease
	parked  []*parkedSet       // by partition
	latest  map[int64]*deadRow // the latest dead letter of a message, by sequence

	filters  []filterRow                     // by generation
	unrouted map[string]*store.UnroutedTopic // by topic
}

// now returns the time on the database's clock.
func now() time.Time { return stamp(time.Now()) }

// stamp returns a time as the database stores it: UTC, to the microsecond.
func stamp(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Microsecond)
}

// clone copies a message, so that neither side sees later changes by the other.
func clone(m *postrider.Message) *postrider.Message {
	c := *m
	c.Payload = append([]byte(nil), m.Payload...)
	if m.Headers != nil {
		c.Headers = make(map[string]string, len(m.Headers))
		maps.Copy(c.Headers, m.Headers)
	}
	return &c
}
