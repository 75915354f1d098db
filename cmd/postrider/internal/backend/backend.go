// Package backend opens stores and publishers by URL.
package backend

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"strings"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/doctor"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store"
)

// connections is the maximum number of database connections per process: enough for a few relays, each of which
// concurrently reads, settles, polls for due messages and renews its leases.
const connections = 16

// Store is everything that the binary needs of a store.
type Store interface {
	store.Relay
	store.StatusReader
	store.Administrator
	store.SagaReader
	postrider.AttemptLog
	doctor.Checker
}

// Outbox is an opened outbox.
type Outbox struct {
	Store
	// Shown is the store's URL for operators, without a password; System is the kind of the database.
	Shown, System string
	// DataPath is in the file system with the data, if it is known.
	DataPath string
	// Publish publishes messages in one transaction and returns their IDs; source is for messages without a Source.
	Publish func(ctx context.Context, source string, msgs []*postrider.Message) ([]string, error)

	// Transactions is the store.Outbox for *sql.Tx, DB its database; nil for stores without one.
	Transactions store.Outbox[*sql.Tx]
	DB           *sql.DB
	// Ping checks that the database responds.
	Ping func(ctx context.Context) error

	close []func()
}

// Open opens the outbox of a store.
func Open(ctx context.Context, s config.Store, logger *slog.Logger) (*Outbox, error) {
	l, err := locate(s)
	if err != nil {
		return nil, err
	}
	o := &Outbox{Shown: l.shown, System: l.kind, DataPath: s.DataPath}
	switch l.kind {
	case kindSQLite:
		o.DataPath = cmp.Or(o.DataPath, l.dsn)
		err = o.openSQLite(l, logger)
	case kindPostgres:
		err = o.openPostgres(ctx, l, logger)
	case kindMySQL:
		err = o.openMySQL(ctx, l, logger)
	}
	if err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

// Unwrap returns the store itself, for those who read its log: stores of some databases have methods for that which Store has not.
func (o *Outbox) Unwrap() any { return o.Store }

// StoreName is a short name of the store for people: its own, or that of the database in its URL.
func (o *Outbox) StoreName(s config.Store) string {
	if s.Name != "" {
		return s.Name
	}
	name := o.Shown
	if i := strings.IndexAny(name, "?#"); i >= 0 {
		name = name[:i]
	}
	name = strings.TrimPrefix(name[strings.LastIndex(name, "/")+1:], "sqlite:")
	if short := strings.TrimSuffix(name, ".db"); short != "" {
		return short
	}
	return o.Shown
}

// IsFile reports whether the store is a file of this host.
func (o *Outbox) IsFile() bool { return strings.HasPrefix(o.Shown, "sqlite:") }

// Close closes what Open has opened.
func (o *Outbox) Close() {
	for i := len(o.close) - 1; i >= 0; i-- {
		o.close[i]()
	}
}

// publishTo publishes through the outbox, so that the library's rules and defaults for messages apply.
func publishTo[Tx any](store store.Outbox[Tx], logger *slog.Logger) func(context.Context, string, []*postrider.Message) ([]string, error) {
	return func(ctx context.Context, source string, msgs []*postrider.Message) ([]string, error) {
		o, err := outbox.New(store, outbox.Config{Source: source, Logger: logger})
		if err != nil {
			return nil, fmt.Errorf("publish: %w", err)
		}
		return o.InTx(ctx, func(ctx context.Context, tx Tx) error {
			_, err := o.Publish(ctx, tx, msgs...)
			return err
		})
	}
}
