package faults

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/itest/process"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	mysqlstore "github.com/postrider/postrider/store/mysql"
	"github.com/postrider/postrider/store/postgres"
)

// childVariable in the environment makes the test binary run as a child that a test stops; its value is a child in JSON.
const childVariable = "POSTRIDER_FAULTS_CHILD"

// childWorks is what a child prints when it is ready, childInside when it is in the transaction of a handler.
const (
	childWorks  = "child works"
	childInside = "child is inside of a transaction"
)

// child configures a child process.
type child struct {
	Role   role
	URL    string // of the database
	Broker string // of JetStream
	Cards  string // the URL of the second database of a shop, see runSaga
	Leases time.Duration
}

type role string

const (
	inHandlerTx  role = "handler with a transaction" // stays in its first transaction
	inInboxTx    role = "inbox transaction"          // the same
	failing      role = "relay whose handler fails"  // so that it settles more than a cursor
	maintenance  role = "maintenance"                // repeatedly
	childLeases       = shortLease
	childAckWait      = 2 * time.Second
)

// runChild runs this process as a child, if it was started as one.
func runChild() {
	text := os.Getenv(childVariable)
	if text == "" {
		return
	}
	var c child
	err := json.Unmarshal([]byte(text), &c)
	if err == nil {
		err = c.run(context.Background())
	}
	fmt.Fprintln(os.Stderr, "child ended:", err)
	os.Exit(1)
}

func (c child) run(ctx context.Context) error {
	switch {
	case c.Role == sagaSleeper:
		return c.runSleeper(ctx)
	case c.Cards != "":
		return c.runSaga(ctx)
	}
	if cfg, err := mysql.ParseDSN(c.URL); err == nil && cfg.DBName == "shop" {
		db, err := sql.Open("mysql", c.URL)
		if err != nil {
			return err
		}
		store, err := mysqlstore.New(db, mysqlstore.Config{IdleTimeout: childLeases})
		if err != nil {
			return err
		}
		return runRole(ctx, c, stores[*sql.Tx](store), onMySQL)
	}
	pool, err := pgxpool.New(ctx, c.URL)
	if err != nil {
		return err
	}
	store, err := postgres.New(pool, postgres.Config{SegmentFor: time.Minute, IdleTimeout: childLeases})
	if err != nil {
		return err
	}
	return runRole(ctx, c, stores[pgx.Tx](store), onPostgres)
}

func runRole[Tx any](ctx context.Context, c child, s stores[Tx], session func(Tx) session) error {
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	switch c.Role {
	case inHandlerTx:
		r, err := relay.New(s, relay.Config{Name: "effects", LeaseTTL: childLeases, Logger: logger})
		if err == nil {
			err = relay.HandleTxFunc(r, "step", stayInside(addTotal("effects", session)))
		}
		if err != nil {
			return err
		}
		return r.Run(ctx)
	case inInboxTx:
		cfg := inbox.ConsumerConfig{Name: "consumer", LeaseTTL: childLeases, Logger: logger}
		consumer, err := newConsumer(ctx, s, cfg, c.Broker, childAckWait, stayInside(addTotal("consumer", session)))
		if err != nil {
			return err
		}
		return consumer.Run(ctx)
	case failing:
		r, err := relay.New(s, relay.Config{Name: "plain", LeaseTTL: childLeases, Logger: logger})
		if err == nil {
			err = r.HandleFunc("step", func(context.Context, *postrider.Message) error { return errors.New("it always fails") })
		}
		if err != nil {
			return err
		}
		fmt.Println(childWorks)
		return r.Run(ctx)
	case maintenance:
		m, ok := s.(store.Maintainer)
		if !ok {
			return fmt.Errorf("%T needs no maintenance", s)
		}
		fmt.Println(childWorks)
		for {
			if _, err := m.Maintain(ctx, store.Retention{For: time.Nanosecond}); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}
	return fmt.Errorf("no role %q", c.Role)
}

// addTotal is addEffect after an update of the account's total, whose row stays locked until the end.
func addTotal[Tx any](consumer string, session func(Tx) session) func(context.Context, Tx, *postrider.Message) error {
	add := addEffect(consumer, session)
	return func(ctx context.Context, tx Tx, m *postrider.Message) error {
		if err := session(tx).exec(ctx, "update totals set total = total + 1 where id = ?", account(m)); err != nil {
			return err
		}
		return add(ctx, tx, m)
	}
}

// stayInside prints when a handler is done, and keeps it from returning.
func stayInside[Tx any](h func(context.Context, Tx, *postrider.Message) error) func(context.Context, Tx, *postrider.Message) error {
	return func(ctx context.Context, tx Tx, m *postrider.Message) error {
		if err := h(ctx, tx, m); err != nil {
			return err
		}
		fmt.Println(childInside)
		<-ctx.Done()
		return ctx.Err()
	}
}

// start starts a child and waits until it prints ready.
func (c child) start(ctx context.Context, log, ready string) (*process.Process, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return process.Start(ctx, process.Command{
		Name: "child", Path: os.Args[0], Env: []string{childVariable + "=" + string(text)}, Ready: ready, Log: log,
	})
}

// startChild starts a child and waits until it prints ready.
func (w *world) startChild(c child, ready string) *process.Process {
	w.t.Helper()
	w.relays++
	p, err := c.start(w.t.Context(), filepath.Join(w.dir, fmt.Sprintf("child-%d.log", w.relays)), ready)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = p.Kill()
		if w.t.Failed() {
			w.t.Logf("child %d wrote:\n%s", p.PID(), p.Tail())
		}
	})
	return p
}
