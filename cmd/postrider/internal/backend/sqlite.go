package backend

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/store/sqlite"
)

// openFile opens a SQLite file. Unless create is set the file must exist, since a mistyped path would otherwise create a
// new, empty database. Only its owner can read a new file; SQLite gives the files next to it the same mode.
func openFile(l location, create bool) (*sql.DB, error) {
	if create {
		file, err := os.OpenFile(l.dsn, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			err = file.Close()
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("create %s: %w", l.shown, err)
		}
	} else if _, err := os.Stat(l.dsn); err != nil {
		return nil, fmt.Errorf("open %s: %w; create the outbox with: postrider migrate up --store %s", l.shown, err, output.ShellQuote(l.shown))
	}
	path, err := filepath.Abs(l.dsn)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", l.shown, err)
	}
	// busy_timeout (ms) is how long a statement waits for another process's transaction before it fails.
	dsn := url.URL{Scheme: "file", Path: path, RawQuery: "_pragma=busy_timeout(10000)&_pragma=synchronous(normal)"}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", l.shown, err)
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, nil
}

func (l location) sqlite() sqlite.Config {
	return sqlite.Config{Prefix: l.store.Prefix, Partitions: l.store.Partitions}
}

func (o *Outbox) openSQLite(l location, logger *slog.Logger) error {
	db, err := openFile(l, false)
	if err != nil {
		return err
	}
	o.close = append(o.close, func() { _ = db.Close() })
	c := l.sqlite()
	c.Partitions = 0 // only sets the number for a new outbox
	store, err := sqlite.New(db, c)
	if err != nil {
		return fmt.Errorf("open the outbox in %s: %w", l.shown, err)
	}
	o.Store, o.Transactions, o.DB, o.Ping = store, store, db, db.PingContext
	o.Publish = publishTo[*sql.Tx](store, logger)
	return nil
}

func migrateSQLite(l location, create bool) (*Schema, error) {
	db, err := openFile(l, create)
	if err != nil {
		return nil, err
	}
	return &Schema{
		Shown:   l.shown,
		Migrate: func(ctx context.Context, to int) ([]string, error) { return sqlite.Migrate(ctx, db, l.sqlite(), to) },
		Status:  func(ctx context.Context) ([]Migration, error) { return sqlite.MigrationStatus(ctx, db, l.sqlite()) },
		Close:   func() { _ = db.Close() },
	}, nil
}
