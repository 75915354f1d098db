// Caseview keeps a read model of the cases that the approvals service publishes. Each message is processed exactly once
// and in order per case, whatever the broker duplicates or reorders and whenever this process is killed.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
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

	"github.com/postrider/postrider"
	natsbroker "github.com/postrider/postrider/broker/nats"
	"github.com/postrider/postrider/examples/caseapproval"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/store/sqlite"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8082", "address of the HTTP server")
	file := flag.String("db", "caseview.db", "file of the database")
	broker := flag.String("nats", "nats://127.0.0.1:4222", "address of NATS")
	stream := flag.String("stream", caseapproval.Stream, "stream to read")
	flag.Parse()
	if err := run(*addr, *file, *broker, *stream); err != nil {
		log.Fatal(err)
	}
}

func run(addr, file, broker, stream string) error {
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

	var consumeErr error
	var consuming sync.WaitGroup
	consuming.Go(func() {
		defer stop()
		consumeErr = consume(ctx, store, broker, stream)
	})

	server := &http.Server{Handler: routes(db), ReadHeaderTimeout: 10 * time.Second}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	log.Printf("listening on %s", listener.Addr())
	context.AfterFunc(ctx, func() { _ = server.Shutdown(context.WithoutCancel(ctx)) })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	consuming.Wait()
	return consumeErr
}

// crashWait is how long the next process waits for messages that this one was processing when it was killed. It is longer
// than any handler takes.
const crashWait = 5 * time.Second

// consume applies messages until ctx ends.
func consume(ctx context.Context, store *sqlite.Store, broker, stream string) error {
	subscriber, err := natsbroker.OpenSubscriber(ctx, broker, natsbroker.SubscriberConfig{
		Config: natsbroker.Config{Stream: stream, MaxAge: caseapproval.StreamAge}, Durable: "case-view",
		Topics: []string{caseapproval.CaseApproved.Topic()}, AckWait: crashWait,
	})
	if err != nil {
		if ctx.Err() != nil {
			return nil // stopped while NATS was unavailable
		}
		return err
	}
	defer subscriber.Close()
	in, err := inbox.New(store)
	if err != nil {
		return err
	}
	c, err := inbox.NewConsumer(in, subscriber, inbox.ConsumerConfig{
		Name: "case-view", LeaseTTL: crashWait,
		// JetStream redelivers out of order; the guard applies the versions of a case in order.
		Versions: &inbox.VersionGuard{FromOne: true},
	})
	if err != nil {
		return err
	}
	if err := inbox.Handle(c, caseapproval.CaseApproved, apply); err != nil {
		return err
	}
	return c.Run(ctx)
}

// apply processes a message. Its changes commit together with the record that the message was consumed.
func apply(ctx context.Context, tx *sql.Tx, m postrider.Typed[caseapproval.Approved]) error {
	_, err := tx.ExecContext(ctx, `
		INSERT INTO case_view (tenant_id, case_id, version, approved_by, approvals) VALUES (?, ?, ?, ?, 1)
		ON CONFLICT DO UPDATE SET version = excluded.version, approved_by = excluded.approved_by, approvals = approvals + 1`,
		m.Tenant, m.Data.CaseID, m.AggregateVersion, m.Data.ApprovedBy)
	return err
}

const schema = `
CREATE TABLE IF NOT EXISTS case_view (
	tenant_id   TEXT NOT NULL,
	case_id     TEXT NOT NULL,
	version     INTEGER NOT NULL,
	approved_by TEXT NOT NULL,
	approvals   INTEGER NOT NULL,
	PRIMARY KEY (tenant_id, case_id)
)`

func open(ctx context.Context, file string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)")
	if err != nil {
		return nil, err
	}
	if _, err := sqlite.Migrate(ctx, db, sqlite.Config{}, sqlite.Latest); err != nil {
		return nil, fmt.Errorf("create the inbox: %w", err)
	}
	_, err = db.ExecContext(ctx, schema)
	return db, err
}

func routes(db *sql.DB) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /tenants/{tenant}/cases/{id}", func(w http.ResponseWriter, r *http.Request) {
		c := caseapproval.Case{TenantID: r.PathValue("tenant"), CaseID: r.PathValue("id")}
		const query = `SELECT version, approved_by, approvals FROM case_view WHERE tenant_id = ? AND case_id = ?`
		err := db.QueryRowContext(r.Context(), query, c.TenantID, c.CaseID).Scan(&c.Version, &c.ApprovedBy, &c.Approvals)
		if errors.Is(err, sql.ErrNoRows) {
			http.Error(w, "there is no such case", http.StatusNotFound)
			return
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(c); err != nil {
			log.Printf("answer: %v", err)
		}
	})
	return mux
}
