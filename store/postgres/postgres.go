package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/internal/address"
	"github.com/postrider/postrider/internal/migrate"
	"github.com/postrider/postrider/internal/signal"
	"github.com/postrider/postrider/store"
)

// Store is an outbox on PostgreSQL. It is safe for concurrent use.
type Store struct {
	pool       pool
	config     Config
	names      names
	sql        statements
	migrations *migrate.Set
	wake       signal.Broadcast
	notifier   *notifier       // nil if Config.NotifyEvery is negative
	listenTo   *pgx.ConnConfig // Config.ListenDSN, nil without
	listener   atomic.Uint32   // the server's process of the connection that listens, 0 without
	heartbeats *ownConn
	adopter    *adopter
	places     chan struct{} // slots for limited transactions; nil: any number

	opening    sync.Mutex
	partitions atomic.Int32            // 0 until the schema is checked; a relay uses this number until it is restarted
	publishing atomic.Int32            // the number used to write messages, 0 if it is the same
	inserts    atomic.Pointer[inserts] // the statements for the number last used to write messages
	rowBytes   atomic.Int64            // the average size of a log row, from recent fetches
	begun      sync.Map                // names of the relays whose cursors exist

	maintaining sync.Mutex
	awaited     awaited
}

var (
	_ store.Relay          = (*Store)(nil)
	_ store.Listener       = (*Store)(nil)
	_ store.Maintainer     = (*Store)(nil)
	_ store.StatusReader   = (*Store)(nil)
	_ store.Administrator  = (*Store)(nil)
	_ store.Records        = (*Store)(nil)
	_ store.Outbox[pgx.Tx] = (*Store)(nil)

	_ store.TxPipeliner[pgx.Tx] = (*Store)(nil)
)

var (
	_ pool = pgxPool{}
	_ pool = sqlPool{}
)

// New returns a store on a pool. The caller closes the pool, after the store. New reads nothing: Open, or the first use, checks
// the schema. The error names every mistake in the Config.
func New(pool *pgxpool.Pool, c Config) (*Store, error) {
	if pool == nil {
		return nil, errors.New("postgres.New needs a pool")
	}
	return newStore(pgxPool{pool}, c)
}

// NewSQL returns a store on a *sql.DB alone: its relays, consumers and operators use connections of the db, whose driver must be pgx's
// (ErrDriver). With another driver, such as lib/pq, only transactions of the caller work: publishing, and inbox.Inbox.Process.
// SQLStore.Store is the same outbox for transactions of pgx. The caller closes the db, after the store. The error names every mistake in
// the Config.
//
// A relay or consumer needs a connection for heartbeats and one for reading and recording, besides those of handlers: SetMaxOpenConns
// takes 0, for any number, or at least 3.
func NewSQL(db *sql.DB, c Config) (*SQLStore, error) {
	if db == nil {
		return nil, errors.New("postgres.NewSQL needs a *sql.DB")
	}
	if n := db.Stats().MaxOpenConnections; n > 0 && n < minConns {
		return nil, fmt.Errorf("postgres.NewSQL: the *sql.DB may open %d connections, a relay needs %d: call SetMaxOpenConns", n, minConns)
	}
	s, err := newStore(sqlPool{db}, c)
	if err != nil {
		return nil, err
	}
	return s.SQL(db), nil
}

// minConns is the least number of connections of a *sql.DB.
const minConns = 3

func newStore(pool pool, c Config) (*Store, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	set, err := c.migrations()
	if err != nil {
		return nil, err
	}
	n := newNames(c)
	s := &Store{pool: pool, config: c, names: n, sql: newStatements(n, c.boundSQL()), migrations: set, heartbeats: newOwnConn(pool),
		adopter: newAdopter()}
	if n := pool.handlers(); n > 0 {
		s.places = make(chan struct{}, n)
	}
	s.rowBytes.Store(assumedRowBytes)
	if c.NotifyEvery > 0 {
		s.notifier = newNotifier(s)
	}
	if c.ListenDSN != "" {
		listenTo, err := pgxpool.ParseConfig(c.ListenDSN) // it may have options of a pool
		if err != nil {
			return nil, fmt.Errorf("Config.ListenDSN: %s", address.Reason(err)) // the text of err has the connection string
		}
		s.listenTo = listenTo.ConnConfig
	}
	return s, nil
}

// Open checks that this program can work with the database's schema.
// Errors: ErrSchemaMissing, ErrSchemaOlder, ErrSchemaNewer.
func (s *Store) Open(ctx context.Context) error {
	_, err := s.open(ctx)
	return err
}

// Close stops sending notifications, waits until the last one is sent, stops adopting a restored outbox, and closes the heartbeat
// connection.
func (s *Store) Close() {
	s.adopter.close()
	s.heartbeats.close()
	if s.notifier != nil {
		s.notifier.close()
	}
}

// open returns the number of partitions, which it reads once.
func (s *Store) open(ctx context.Context) (int, error) {
	if n := s.partitions.Load(); n > 0 {
		return int(n), nil
	}
	s.opening.Lock()
	defer s.opening.Unlock()
	if n := s.partitions.Load(); n > 0 {
		return int(n), nil
	}
	n, err := s.checkSchema(ctx, s.pool, anything)
	if err != nil {
		return 0, err
	}
	s.partitions.Store(int32(n))
	return n, nil
}
