package main

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/bench/internal/report"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/postgres"
)

const (
	writersAlone = "8 writers alone"
	withRelay    = "8 writers and a relay"
	withOpenTx   = "8 writers and a relay, a transaction left open"
)

// togetherSuite runs writers and a relay on the server at full speed, also with a concurrent open transaction, which
// keeps vacuum from removing anything.
var togetherSuite = suite{
	name: "together", title: "Publish at full speed while a relay delivers, until all is delivered", figure: figureRate, unit: "msg/s", also: usual, share: 0.5,
	setup: func(ctx context.Context, b *bundle) ([]entry, error) {
		if err := b.database(ctx); err != nil {
			return nil, err
		}
		if _, err := b.pool.Exec(ctx, ordersSQL); err != nil {
			return nil, err
		}
		store, err := b.store(ctx, "ours_")
		if err != nil {
			return nil, err
		}
		pinned, err := b.store(ctx, "pinned_")
		if err != nil {
			return nil, err
		}
		return []entry{
			{name: writersAlone, role: report.Limit, run: func(ctx context.Context) (report.Figures, error) { return nil, b.write(ctx, store, b.n) }},
			{name: withRelay, role: report.Ours, limit: writersAlone,
				run: func(ctx context.Context) (report.Figures, error) { return nil, b.together(ctx, store, b.n) }},
			{name: withOpenTx, role: report.Ours, limit: withRelay, run: func(ctx context.Context) (report.Figures, error) {
				return nil, b.whileOpen(ctx, func() error { return b.together(ctx, pinned, b.n) })
			}},
		}, nil
	},
}

// write places n orders from 8 writers.
func (b *bundle) write(ctx context.Context, s *postgres.Store, n int) error {
	o, err := newOutbox(s)
	if err != nil {
		return err
	}
	p := newPaced(0, n)
	return parallel(ctx, p.writers, n, func(ctx context.Context, i int) error { return placePaced(ctx, o, p, i) })
}

// together is write while a relay delivers, until it has delivered everything.
func (b *bundle) together(ctx context.Context, s *postgres.Store, n int) error {
	sink := &counter{}
	sink.expect(n)
	r, err := newRelay(s, &relay.Config{Publisher: sink, Start: relay.FromNow})
	if err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	written := make(chan struct{})
	go func() {
		defer close(written)
		err := waitReady(ctx, r)
		if err == nil {
			err = b.write(ctx, s, n)
		}
		if err != nil {
			fail(err)
		}
	}()
	err = runUntil(ctx, r, sink.all)
	<-written
	return err
}

// whileOpen runs work during a transaction that has written and keeps its snapshot.
func (b *bundle) whileOpen(ctx context.Context, work func() error) error {
	tx, err := b.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, "select pg_current_xact_id(), count(*) from orders"); err != nil {
		return err
	}
	return work()
}
