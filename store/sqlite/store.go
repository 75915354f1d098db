package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/postrider/postrider/internal/signal"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// Store is an outbox in a SQLite database, with everything that relays and operators keep about it. It is safe for concurrent
// use. There is nothing to close: close the *sql.DB when every relay has stopped.
type Store struct {
	sagaReader
	cfg        Config
	db         *sql.DB
	partitions atomic.Int64         // as opened; a relay uses this number until it is restarted
	publishing atomic.Int64         // the number used to write messages, 0 if it is the same
	prepared   map[string]*sql.Stmt // by the text in the code; not changed after New
	fetches    unions
	dues       unions
	// firsts has the first sequence that a transaction wrote. There is only one writer at a time, so every later row that the
	// transaction sees is its own.
	firsts      stored.ByTx[int64]
	turn        *turn
	wake        signal.Broadcast
	incarnation incarnation
}

var (
	_ store.Relay    = (*Store)(nil)
	_ store.Listener = (*Store)(nil)
)

// New opens the outbox that Migrate created in db, and sets the file to WAL mode if it is in another mode. Allow db at least four
// connections: each transaction holds one, and so does each relay while it works. Errors: ErrSchemaMissing, ErrSchemaOlder,
// ErrSchemaNewer, ErrUnsuitable, and those of the file.
func New(db *sql.DB, cfg Config) (*Store, error) {
	ctx := context.Background()
	s, err := open(ctx, db, cfg)
	if err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context) error{s.checkSchema, s.readPartitions, s.prepare} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// open checks everything except the schema.
func open(ctx context.Context, db *sql.DB, cfg Config) (*Store, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if db == nil {
		return nil, errors.New("sqlite store: no *sql.DB was given")
	}
	s := &Store{cfg: cfg, db: db, turn: newTurn()}
	s.sagaReader = s.newSagaReader()
	s.fetches.text, s.dues.text = fetchSQL, dueSQL
	err = s.patiently(ctx, func() error {
		if err := s.checkDatabase(ctx); err != nil {
			return err
		}
		return s.findIncarnation(ctx)
	})
	if err != nil {
		return nil, cfg.explain("open the SQLite database", err)
	}
	return s, nil
}

// oldest is the first version of SQLite with STRICT tables, RETURNING, and JSON operators that are always built in.
var oldest = [2]int{3, 38}

// checkDatabase checks SQLite's version and makes sure of WAL mode, in which readers and the one writer do not wait for each
// other. The mode is stored in the file.
func (s *Store) checkDatabase(ctx context.Context) error {
	var version, mode string
	if err := s.db.QueryRowContext(ctx, `SELECT sqlite_version()`).Scan(&version); err != nil {
		return err
	}
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("%w: SQLite's version %q cannot be read: %w", ErrUnsuitable, version, err)
	}
	if major < oldest[0] || major == oldest[0] && minor < oldest[1] {
		return fmt.Errorf("%w: the driver has SQLite %s; use one with %d.%d or newer", ErrUnsuitable, version, oldest[0],
			oldest[1])
	}
	if err := s.db.QueryRowContext(ctx, `PRAGMA journal_mode`).Scan(&mode); err != nil || mode == "wal" {
		return err
	}
	if err := s.db.QueryRowContext(ctx, `PRAGMA journal_mode = WAL`).Scan(&mode); err != nil || mode == "wal" {
		return err
	}
	return fmt.Errorf("%w: the journal mode stays %q and must be WAL: use a file (not :memory:) on a local disk", ErrUnsuitable,
		mode)
}

const partitionsSQL = `SELECT value FROM {prefix}meta WHERE name = 'partitions'`

func (s *Store) readPartitions(ctx context.Context) error {
	var n int
	err := s.read(ctx, "read the number of partitions", func(t txn) error { return t.get(ctx, partitionsSQL, nil, &n) })
	if err != nil {
		return err
	}
	if s.cfg.Partitions != 0 && s.cfg.Partitions != n {
		return fmt.Errorf("sqlite store: Config.Partitions is %d and the outbox has %d: set it to that or to 0",
			s.cfg.Partitions, n)
	}
	s.partitions.Store(int64(n))
	return nil
}

// number returns how many partitions the outbox had when it was opened.
func (s *Store) number() int { return int(s.partitions.Load()) }

// prepare compiles frequent statements, and those that operators run for many messages, once: here and not on first use, since
// that would need a second connection in the middle of a transaction.
func (s *Store) prepare(ctx context.Context) error {
	s.prepared = make(map[string]*sql.Stmt)
	for _, text := range []string{
		lockSQL, markTxSQL, sameTxSQL, insertSQL, insertManySQL, writtenSQL,
		heartbeatSQL, viewSQL, beginFileSQL,
		runSQL, loneSQL,
		leaseSQL, moveSQL, removeSQL, parkLogSQL, parkAgainSQL, deadFromParkedSQL, deadFromLogSQL, unparkSQL,
		isOpenSQL, holdSQL, nextHeadSQL, newHeadSQL, dueNowSQL, unholdSQL,
		resolveSQL, waitsForSQL, heldHeadSQL, sentBackSQL, redriveSQL, redrivenHeadSQL,
		claimSQL, heldAmongSQL, versionSQL, setVersionSQL, takeSQL,
		recordAttemptSQL, trimAttemptsSQL,
		loadSagasSQL, sagaOfRunSQL, sagaOfIDSQL, sagaOfKeySQL, createSagaSQL, saveSagaSQL, writeHistorySQL,
		sagaRecordSQL, saveRecordSQL,
	} {
		stmt, err := s.db.PrepareContext(ctx, s.expand(text))
		if err != nil {
			return s.cfg.explain("prepare a statement", err)
		}
		s.prepared[text] = stmt
	}
	return nil
}

// unions holds statements made of one SELECT per partition, by the number of partitions, prepared on first use.
type unions struct {
	text func(partitions int) string

	mu      sync.Mutex
	byCount map[int]*sql.Stmt
}

func (u *unions) stmt(ctx context.Context, s *Store, partitions int) (*sql.Stmt, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if stmt := u.byCount[partitions]; stmt != nil {
		return stmt, nil
	}
	stmt, err := s.db.PrepareContext(ctx, s.expand(u.text(partitions)))
	if err != nil {
		return nil, err
	}
	if u.byCount == nil {
		u.byCount = make(map[int]*sql.Stmt)
	}
	u.byCount[partitions] = stmt
	return stmt, nil
}

// Partitions implements store.Leases.
func (s *Store) Partitions(context.Context) (int, error) { return s.number(), nil }

// Wake implements store.Outbox: it signals the subscribers of this Store. Those in other processes find messages with Listen.
func (s *Store) Wake(topics ...string) { s.wake.Wake(topics...) }

// Listen implements store.Listener: it looks for new sequences.
func (s *Store) Listen(ctx context.Context) error {
	s.wake.Alone(ctx, func() {
		s.wake.Watch(ctx, func(ctx context.Context) (last int64, err error) {
			err = s.db.QueryRowContext(ctx, s.expand(lastSequenceSQL)).Scan(&last)
			return last, err
		})
	})
	return nil
}

// Subscribe implements store.Log.
func (s *Store) Subscribe(takes func(topic string) bool) (<-chan struct{}, func()) {
	return s.wake.Subscribe(takes)
}
