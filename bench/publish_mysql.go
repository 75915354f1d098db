package main

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/bench/internal/report"
	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/itest/process"
	mysqlstore "github.com/postrider/postrider/store/mysql"
)

const (
	mysqlByHand = "MariaDB: by hand, separate statements"
	mysqlInTx   = "MariaDB: Postrider, InTx"
)

// mysqlHandSQL has the columns of the log, and a parameter for each value.
const mysqlHandSQL = `INSERT INTO hand (partition_id, id, topic, message_key, type, source, message_time, content_type, headers, payload, created_at)
	VALUES (?, ?, ?, ?, ?, ?, ?, ?, '{}', ?, ?)`

// mysqlPublishSuite is publishSuite on MariaDB, whose commits wait for the disk.
var mysqlPublishSuite = suite{
	name: "mysql-publish", title: "MariaDB: publish with a business row, one transaction each, 8 writers", figure: figureRate, unit: "tx/s", share: 0.3,
	also: []report.Column{{Figure: figureClient, Title: "client µs/msg"}, {Figure: figureAllocs, Title: "allocs/msg"}},
	setup: func(ctx context.Context, b *bundle) ([]entry, error) {
		db, err := b.mysql(ctx)
		if err != nil {
			return nil, err
		}
		for _, table := range []string{"CREATE TABLE orders (id BIGINT AUTO_INCREMENT PRIMARY KEY, customer VARCHAR(100) NOT NULL, total BIGINT NOT NULL) ENGINE=InnoDB",
			"CREATE TABLE hand LIKE postrider_log"} {
			if _, err := db.ExecContext(ctx, table); err != nil {
				return nil, err
			}
		}
		s, err := mysqlstore.New(db, mysqlstore.Config{})
		if err != nil {
			return nil, err
		}
		o, err := newOutbox(s)
		if err != nil {
			return nil, err
		}
		order := func(ctx context.Context, tx *sql.Tx, i int) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO orders (customer, total) VALUES (?, ?)", customer, i)
			return err
		}
		writes := func(name, limit string, role report.Role, publish func(ctx context.Context, i int) error) entry {
			return entry{name: name, role: role, limit: limit,
				prepare: func(ctx context.Context) error { return parallel(ctx, mysqlWriters, 20*mysqlWriters, publish) },
				run: func(ctx context.Context) (report.Figures, error) {
					return nil, parallel(ctx, mysqlWriters, b.n, publish)
				}}
		}
		return []entry{
			writes(mysqlByHand, "", report.Limit, func(ctx context.Context, i int) error {
				m := keys(manyKeys).message(i)
				m.FillDefaults(source, time.Now())
				return inSQLTx(ctx, db, func(tx *sql.Tx) error {
					if err := order(ctx, tx, i); err != nil {
						return err
					}
					_, err := tx.ExecContext(ctx, mysqlHandSQL, postrider.PartitionOf(m.Key, m.ID, 8), m.ID, m.Topic, m.Key, m.Type, m.Source,
						m.Time.UnixMicro(), m.ContentType, m.Payload, time.Now().UnixMicro())
					return err
				})
			}),
			writes(mysqlInTx, mysqlByHand, report.Ours, func(ctx context.Context, i int) error {
				_, err := o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
					if err := order(ctx, tx, i); err != nil {
						return err
					}
					_, err := o.Publish(ctx, tx, keys(manyKeys).message(i))
					return err
				})
				return err
			}),
		}, nil
	},
}

const mysqlWriters = 8

// mysql starts a private MariaDB with an outbox.
func (b *bundle) mysql(ctx context.Context) (*sql.DB, error) {
	bin, err := servertest.Lookup(ctx, servertest.MariaDBBin)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMissing, err)
	}
	s, err := process.StartMariaDB(ctx, bin, b.dir, "--innodb-flush-log-at-trx-commit=1", "--innodb-doublewrite=ON")
	if err != nil {
		return nil, err
	}
	b.servers = append(b.servers, s)
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil, err
	}
	c := mysql.NewConfig()
	c.Net, c.Addr, c.User = "tcp", u.Host, u.User.Username()
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	server := sql.OpenDB(connector)
	defer func() { _ = server.Close() }()
	if _, err := server.ExecContext(ctx, "CREATE DATABASE bench"); err != nil {
		return nil, err
	}
	c.DBName = "bench"
	if connector, err = mysql.NewConnector(c); err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxIdleConns(poolSize)
	b.after(func() { _ = db.Close() })
	_, err = mysqlstore.Migrate(ctx, db, mysqlstore.Config{}, mysqlstore.Latest)
	return db, err
}
