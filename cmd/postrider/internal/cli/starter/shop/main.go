// Shop takes orders. An order and its message are one transaction; a relay in the same process delivers the messages to NATS, also
// those that an earlier process left.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider"
	natsbroker "github.com/postrider/postrider/broker/nats"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/postgres"
)

// Order is the data of OrderPlaced.
type Order struct {
	Number int64  `json:"number"`
	Item   string `json:"item"`
}

// OrderPlaced says that an order was placed. Messages of one order are delivered one after another.
var OrderPlaced = postrider.Define[Order]("order.placed").
	WithKey(func(o Order) string { return "order/" + strconv.FormatInt(o.Number, 10) })

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if err := run(ctx, stop); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, stop func()) error {
	defer stop()
	pool, err := pgxpool.New(ctx, cmp.Or(os.Getenv("DATABASE_URL"), "postgres://shop:shop@127.0.0.1:5432/shop"))
	if err != nil {
		return err
	}
	defer pool.Close()
	// In production, "postrider migrate up" does this, before the program is deployed and with another role.
	if _, err := postgres.Migrate(ctx, pool, postgres.Config{}, postgres.Latest); err != nil {
		return err
	}
	const orders = "CREATE TABLE IF NOT EXISTS orders (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item text NOT NULL)"
	if _, err := pool.Exec(ctx, orders); err != nil {
		return err
	}
	store, err := postgres.New(pool, postgres.Config{})
	if err != nil {
		return err
	}
	defer store.Close()
	box, err := outbox.New(store, outbox.Config{Source: "shop"})
	if err != nil {
		return err
	}
	relayed := make(chan error, 1)
	go func() {
		relayed <- deliver(ctx, store)
		stop()
	}()
	served := serve(ctx, box)
	stop()
	return errors.Join(served, <-relayed)
}

// deliver moves messages from the outbox to NATS until ctx ends. Orders are taken while NATS is down; their messages wait.
func deliver(ctx context.Context, store *postgres.Store) error {
	publisher, err := natsbroker.Open(ctx, cmp.Or(os.Getenv("NATS_URL"), "nats://127.0.0.1:4222"), natsbroker.Config{Stream: "SHOP"})
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	defer publisher.Close()
	r, err := relay.New(store, relay.Config{Name: "to-nats", Publisher: publisher})
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// serve takes orders at POST /orders?item=… until ctx ends.
func serve(ctx context.Context, box *outbox.Outbox[pgx.Tx]) error {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		order, err := place(r.Context(), box, r.FormValue("item"))
		if err != nil {
			log.Print(err)
			http.Error(w, "the order was not placed", http.StatusInternalServerError)
			return
		}
		_ = json.NewEncoder(w).Encode(order) // the client may be gone
	})
	server := &http.Server{Addr: cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8080"), Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	ended := context.AfterFunc(ctx, func() { _ = server.Shutdown(context.WithoutCancel(ctx)) })
	defer ended()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// place commits an order and its message, or neither.
func place(ctx context.Context, box *outbox.Outbox[pgx.Tx], item string) (Order, error) {
	order := Order{Item: item}
	_, err := box.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		err := tx.QueryRow(ctx, "INSERT INTO orders (item) VALUES ($1) RETURNING number", item).Scan(&order.Number)
		if err != nil {
			return err
		}
		message, err := OrderPlaced.New(order)
		if err != nil {
			return err
		}
		_, err = box.Publish(ctx, tx, message)
		return err
	})
	return order, err
}
