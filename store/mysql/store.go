package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/postrider/postrider/internal/signal"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// Store is an outbox in a MySQL or MariaDB database, with everything that relays and operators store about it. It is safe for
// concurrent use. It needs no closing: close the *sql.DB when every relay has stopped.
type Store struct {
	sagaReader
	cfg        Config
	db         *sql.DB
	names      *strings.Replacer
	server     server       // as of opening
	partitions atomic.Int64 // as of New, or of this Store's Repartition; relays work with it until they are restarted
	publishing atomic.Int64 // the number of partitions for publishing, 0 while it is the same
	reading    pace
	closing    closing
	served     incarnations
	wrote      stored.ByTx[gaps] // the sequences that a transaction has written
	held       *stored.HeldStatements
	wake       signal.Broadcast
	places     chan struct{} // slots for limited transactions; nil if the pool is not bounded
	placed     sync.Map      // transactions that have a slot
}

var (
	_ store.Relay    = (*Store)(nil)
	_ store.Listener = (*Store)(nil)
)

// New opens the outbox in the database that db connects to; Migrate must have created it. Allow db at least four connections:
// each transaction holds one, and so does each relay while it works. Errors: ErrSchemaMissing, ErrSchemaOlder, ErrSchemaNewer,
// ErrUnsuitable, and those of the server.
func New(db *sql.DB, cfg Config) (*Store, error) {
	ctx := context.Background()
	s, err := open(ctx, db, cfg)
	if err != nil {
		return nil, err
	}
	if err := s.checkSchema(ctx); err != nil {
		return nil, err
	}
	if err := s.readPartitions(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// open checks everything but the schema.
func open(ctx context.Context, db *sql.DB, cfg Config) (*Store, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if db == nil {
		return nil, errors.New("mysql store: no *sql.DB was given")
	}
	s := &Store{cfg: cfg, db: db, names: expander(cfg.Prefix), places: makePlaces(db)}
	s.sagaReader, s.held = s.newSagaReader(), s.heldStatements()
	var v server
	err = db.QueryRowContext(ctx, serverSQL).Scan(v.dest()...)
	if err == nil {
		err = s.pooled().each(ctx, variablesSQL, nil, v.scanVariable)
	}
	if err != nil {
		return nil, cfg.explain("look at the MySQL server", err)
	}
	if err := v.check(); err != nil {
		return nil, fmt.Errorf("mysql store: %w", err)
	}
	var database sql.NullString
	if err := db.QueryRowContext(ctx, `SELECT DATABASE()`).Scan(&database); err != nil {
		return nil, cfg.explain("look at the MySQL server", err)
	}
	if !database.Valid {
		return nil, fmt.Errorf("mysql store: %w: the connection is to no database; name one in the DSN, as in "+
			"user:password@tcp(host:3306)/shop", ErrUnsuitable)
	}
	s.server = v
	return s, nil
}

const partitionsSQL = `SELECT value FROM {prefix}meta WHERE name = 'partitions'`

func (s *Store) readPartitions(ctx context.Context) error {
	var n int
	if err := s.pooled().get(ctx, partitionsSQL, nil, &n); err != nil {
		return s.cfg.explain("read the number of partitions", err)
	}
	if s.cfg.Partitions != 0 && s.cfg.Partitions != n {
		return fmt.Errorf("mysql store: Config.Partitions is %d and the outbox has %d: set it to that or to 0", s.cfg.Partitions, n)
	}
	s.partitions.Store(int64(n))
	return nil
}

// number returns how many partitions this Store works with.
func (s *Store) number() int { return int(s.partitions.Load()) }

// Partitions implements store.Leases.
func (s *Store) Partitions(context.Context) (int, error) { return s.number(), nil }

// Wake implements store.Outbox: it signals the subscribers of this Store. Those in other processes find messages with Listen.
func (s *Store) Wake(topics ...string) { s.wake.Wake(topics...) }

// lastSequenceSQL is answered from the end of the primary key.
const lastSequenceSQL = `SELECT COALESCE(MAX(seq), 0) FROM {prefix}log`

// Listen implements store.Listener: it looks for new sequences. Polling finds a message whose sequence is lower than one that was
// committed before it.
func (s *Store) Listen(ctx context.Context) error {
	s.wake.Alone(ctx, func() {
		s.wake.Watch(ctx, func(ctx context.Context) (last int64, err error) {
			err = s.pooled().get(ctx, lastSequenceSQL, nil, &last)
			return last, err
		})
	})
	return nil
}

// Subscribe implements store.Log.
func (s *Store) Subscribe(takes func(topic string) bool) (<-chan struct{}, func()) {
	return s.wake.Subscribe(takes)
}
