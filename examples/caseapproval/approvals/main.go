// Approvals is a service that opens and approves cases. An approval and its message are one transaction; a relay in the
// same process delivers the messages to NATS, even if NATS was unavailable or this process was killed.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os/signal"
	"sync"
	"syscall"
	"time"

	_ "modernc.org/sqlite"

	natsbroker "github.com/postrider/postrider/broker/nats"
	"github.com/postrider/postrider/examples/caseapproval"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/sqlite"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8081", "address of the HTTP server")
	file := flag.String("db", "approvals.db", "file of the database")
	broker := flag.String("nats", "nats://127.0.0.1:4222", "address of NATS")
	flag.Parse()
	if err := run(*addr, *file, *broker); err != nil {
		log.Fatal(err)
	}
}

func run(addr, file, broker string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	db, err := open(ctx, file)
	if err != nil {
		return err
	}
	defer db.Close()
	store, err := sqlite.New(db, sqlite.Config{})
	if err != nil {
		return err
	}
	box, err := outbox.New(store, outbox.Config{Source: "approvals"})
	if err != nil {
		return err
	}

	// The service works without the broker: what it publishes waits in the outbox.
	var relayErr error
	var relaying sync.WaitGroup
	relaying.Go(func() {
		defer stop()
		relayErr = deliver(ctx, store, broker)
	})

	s := &service{db: db, outbox: box}
	server := &http.Server{Handler: s.routes(), ReadHeaderTimeout: 10 * time.Second}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	log.Printf("listening on %s", listener.Addr())
	context.AfterFunc(ctx, func() { _ = server.Shutdown(context.WithoutCancel(ctx)) })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	relaying.Wait()
	return relayErr
}

// deliver moves messages from the outbox to NATS until ctx ends.
func deliver(ctx context.Context, store store.Relay, broker string) error {
	publisher, err := natsbroker.Open(ctx, broker, natsbroker.Config{Stream: caseapproval.Stream, MaxAge: caseapproval.StreamAge})
	if err != nil {
		if ctx.Err() != nil {
			return nil // stopped while NATS was unavailable
		}
		return err
	}
	defer publisher.Close()
	r, err := relay.New(store, relay.Config{
		Name: "to-nats", Publisher: publisher,
		LeaseTTL: 5 * time.Second, // if this process is killed, the next one waits this long
	})
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

const schema = `
CREATE TABLE IF NOT EXISTS cases (
	tenant_id   TEXT NOT NULL,
	case_id     TEXT NOT NULL,
	opened_by   TEXT NOT NULL,
	approved_by TEXT NOT NULL DEFAULT '',
	version     INTEGER NOT NULL DEFAULT 0,
	PRIMARY KEY (tenant_id, case_id),
	CHECK (approved_by <> opened_by) -- four eyes
)`

func open(ctx context.Context, file string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)")
	if err != nil {
		return nil, err
	}
	if _, err := sqlite.Migrate(ctx, db, sqlite.Config{}, sqlite.Latest); err != nil {
		return nil, fmt.Errorf("create the outbox: %w", err)
	}
	_, err = db.ExecContext(ctx, schema)
	return db, err
}
