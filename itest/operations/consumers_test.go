package operations_test

import (
	"context"
	"log/slog"
	"net/http"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"github.com/postrider/postrider"
	natsbroker "github.com/postrider/postrider/broker/nats"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/store/postgres"
	"github.com/postrider/postrider/telemetry"
	"github.com/postrider/postrider/telemetry/export"
)

// consumers runs two consumers of what the relay of orders sends, which Prometheus scrapes: "billing", and "ledger", whose handler hangs until
// the returned function is called.
func (w *world) consumers() (unhang func()) {
	w.t.Helper()
	p, err := export.Open(w.t.Context(), export.Config{Prometheus: true, Logger: slog.New(slog.DiscardHandler)})
	must(w.t, err)
	w.t.Cleanup(func() { _ = p.Shutdown(context.Background()) })
	tele, err := telemetry.New(telemetry.Config{Meter: p.Meter})
	must(w.t, err)
	w.targets = append(w.targets, http.HandlerFunc(func(answer http.ResponseWriter, q *http.Request) {
		if w.absent.Load() {
			http.Error(answer, "gone", http.StatusBadGateway)
			return
		}
		p.Handler.ServeHTTP(answer, q)
	}))
	s, err := postgres.New(w.db, postgres.Config{})
	must(w.t, err)
	in, err := inbox.New(s)
	must(w.t, err)
	conn, err := nats.Connect(w.nats.URL, nats.MaxReconnects(-1))
	must(w.t, err)
	w.t.Cleanup(conn.Close)
	hung := make(chan struct{})
	unhang = sync.OnceFunc(func() { close(hung) })
	for name, handler := range map[string]func(context.Context, pgx.Tx, *postrider.Message) error{
		"billing": func(context.Context, pgx.Tx, *postrider.Message) error { return nil },
		"ledger":  func(context.Context, pgx.Tx, *postrider.Message) error { <-hung; return nil },
	} {
		w.consume(conn, in, tele, name, handler)
	}
	w.t.Cleanup(unhang)
	return unhang
}

// consume runs a consumer until the test ends.
func (w *world) consume(
	conn *nats.Conn, in *inbox.Inbox[pgx.Tx], tele *telemetry.Telemetry, name string, handler func(context.Context, pgx.Tx, *postrider.Message) error,
) {
	w.t.Helper()
	from, err := natsbroker.NewSubscriber(w.t.Context(), conn, natsbroker.SubscriberConfig{
		Config: natsbroker.Config{Stream: "ORDERS"}, Durable: name, Topics: []string{"orders"},
	})
	must(w.t, err)
	c, err := inbox.NewConsumer(in, from, inbox.ConsumerConfig{Name: name, Observer: tele.Consumer("main", name), Logger: slog.New(slog.DiscardHandler)})
	must(w.t, err)
	must(w.t, c.HandleFunc("t", handler))
	unwatch := tele.WatchConsumer("main", c)
	ctx, stop := context.WithCancel(context.WithoutCancel(w.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	w.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
		unwatch()
	})
}
