package main

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"sync/atomic"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/bench/internal/report"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/sqlite"
)

const (
	sqliteHand = "by hand"
	// sqliteDSN: with synchronous full, SQLite's default, every commit waits for the disk; a transaction takes the write lock
	// when it begins (immediate), so that writers wait for each other instead of failing.
	sqliteDSN = "file:%s?_pragma=journal_mode(wal)&_pragma=synchronous(%s)&_pragma=busy_timeout(10000)&_txlock=immediate"
)

// sqliteFiles numbers the files of this process.
var sqliteFiles atomic.Int64

// sqliteFile is the path of a new file.
func (b *bundle) sqliteFile() string {
	return filepath.Join(b.dir, fmt.Sprintf("bench-%d.db", sqliteFiles.Add(1)))
}

// openSQLite opens a file, with synchronous full or off.
func (b *bundle) openSQLite(path, synchronous string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", fmt.Sprintf(sqliteDSN, path, synchronous))
	if err == nil {
		b.after(func() { _ = db.Close() })
	}
	return db, err
}

// sqliteOutbox creates an outbox in a file.
func (b *bundle) sqliteOutbox(ctx context.Context, path string) (*sql.DB, *sqlite.Store, error) {
	db, err := b.openSQLite(path, "full")
	if err != nil {
		return nil, nil, err
	}
	if _, err := sqlite.Migrate(ctx, db, sqlite.Config{}, sqlite.Latest); err != nil {
		return nil, nil, err
	}
	if _, err := db.ExecContext(ctx, "create table orders (id integer primary key, customer text not null, total integer not null)"); err != nil {
		return nil, nil, err
	}
	s, err := sqlite.New(db, sqlite.Config{})
	return db, s, err
}

var sqlitePublishSuite = suite{
	name: "sqlite-publish", title: "SQLite: publish with a business row, one transaction each, synced, 1 writer", figure: figureRate, unit: "tx/s",
	also: []report.Column{{Figure: figureClient, Title: "client µs/msg"}, {Figure: figureAllocs, Title: "allocs/msg"}}, share: 0.1,
	setup: func(ctx context.Context, b *bundle) ([]entry, error) {
		handDB, _, err := b.sqliteOutbox(ctx, b.sqliteFile())
		if err != nil {
			return nil, err
		}
		db, s, err := b.sqliteOutbox(ctx, b.sqliteFile())
		if err != nil {
			return nil, err
		}
		o, err := newOutbox(s)
		if err != nil {
			return nil, err
		}
		byHand := func(ctx context.Context, i int) error {
			return inSQLTx(ctx, handDB, func(tx *sql.Tx) error {
				if _, err := tx.ExecContext(ctx, sqliteOrderSQL, customer, i); err != nil {
					return err
				}
				_, err := tx.ExecContext(ctx, sqliteInsertSQL, sqliteColumns(keys(manyKeys).message(i))...)
				return err
			})
		}
		ours := func(ctx context.Context, i int) error {
			return inSQLTx(ctx, db, func(tx *sql.Tx) error {
				if _, err := tx.ExecContext(ctx, sqliteOrderSQL, customer, i); err != nil {
					return err
				}
				_, err := o.Publish(ctx, tx, keys(manyKeys).message(i))
				return err
			})
		}
		return []entry{
			{name: sqliteHand, role: report.Limit, run: func(ctx context.Context) (report.Figures, error) { return nil, parallel(ctx, 1, b.n, byHand) }},
			{name: "Postrider", role: report.Ours, limit: sqliteHand,
				run: func(ctx context.Context) (report.Figures, error) { return nil, parallel(ctx, 1, b.n, ours) }},
		}, nil
	},
}

var sqliteDrainSuite = suite{
	name: "sqlite-drain", title: "SQLite: drain a backlog to a handler that does nothing", figure: figureRate, unit: "msg/s",
	also: []report.Column{{Figure: figureClient, Title: "client µs/msg"}, {Figure: figureAllocs, Title: "allocs/msg"}},
	setup: func(ctx context.Context, b *bundle) ([]entry, error) {
		file := b.sqliteFile()
		_, s, err := b.sqliteOutbox(ctx, file)
		if err != nil {
			return nil, err
		}
		unsynced, err := b.openSQLite(file, "off") // for the bare loop's position: a relay does not wait for the disk here either
		if err != nil {
			return nil, err
		}
		if err := fillSQLite(ctx, s, b.n); err != nil {
			return nil, err
		}
		return []entry{
			{name: bareLoop, role: report.Limit, run: func(ctx context.Context) (report.Figures, error) { return nil, sqliteLoop(ctx, unsynced, b.n) }},
			b.drainEntry(oursKeyed, bareLoop, "", s),
			{name: "Postrider, 10,000 keys, a message at a time", role: report.Ours, limit: bareLoop, run: func(ctx context.Context) (report.Figures, error) {
				return nil, b.drainToHandler(ctx, s, relay.Config{}, b.n, nil)
			}},
		}, nil
	},
}

func fillSQLite(ctx context.Context, s *sqlite.Store, n int) error {
	o, err := newOutbox(s)
	if err != nil {
		return err
	}
	const chunk = 1000
	for from := 0; from < n; from += chunk {
		var msgs []*postrider.Message
		for i := from; i < min(from+chunk, n); i++ {
			msgs = append(msgs, keys(manyKeys).message(i))
		}
		if _, err := o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := o.Publish(ctx, tx, msgs...)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}
