package main

import (
	"context"
	"fmt"
	"net/url"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"
)

// bundle holds what one suite works with: a number of messages and, on request, servers of the world.
type bundle struct {
	*world
	n        int
	pool     *pgxpool.Pool // nil until database is called
	url      string        // of the suite's database
	cleanups []func()
}

// after registers a function to run after the suite, the last one first.
func (b *bundle) after(f func()) { b.cleanups = append(b.cleanups, f) }

func (b *bundle) cleanUp() {
	for i := len(b.cleanups) - 1; i >= 0; i-- {
		b.cleanups[i]()
	}
}

// poolSize is the maximum that the suites need: 32 writers, a relay and the observer.
const poolSize = 48

// database creates a database for the suite.
func (b *bundle) database(ctx context.Context) error {
	server, err := b.startPostgres(ctx)
	if err != nil {
		return err
	}
	b.databases++
	name := fmt.Sprintf("bench_%d_%d", os.Getpid(), b.databases)
	if err := b.inPostgres(ctx, server, "drop database if exists "+name+" with (force)", "create database "+name); err != nil {
		return err
	}
	b.after(func() {
		if err := b.inPostgres(context.WithoutCancel(ctx), server, "drop database "+name+" with (force)"); err != nil {
			fmt.Fprintln(b.progress, "drop the suite's database:", err)
		}
	})
	if b.url, err = withDatabase(server, name); err != nil {
		return err
	}
	config, err := pgxpool.ParseConfig(b.url)
	if err != nil {
		return err
	}
	config.MaxConns = poolSize
	if b.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	b.after(b.pool.Close)
	return nil
}

// withDatabase returns the URL of another database of the same server.
func withDatabase(server, database string) (string, error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", err
	}
	u.Path = "/" + database
	return u.String(), nil
}
