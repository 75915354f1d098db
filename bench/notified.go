package main

import (
	"context"

	"github.com/postrider/postrider/bench/internal/report"
	"github.com/postrider/postrider/store/postgres"
)

const (
	notifiedNever = "Postrider, InTx, no notifications"
	notifiedEach  = "Postrider, InTx, notifications"
)

// notifiedSuite measures what notifications cost a publisher while somebody listens.
var notifiedSuite = suite{
	name: "notified", title: "Publish with a business row while another process would listen, 8 writers", figure: figureRate, unit: "tx/s", also: usual, share: 0.3,
	setup: func(ctx context.Context, b *bundle) ([]entry, error) {
		if err := b.database(ctx); err != nil {
			return nil, err
		}
		if _, err := b.pool.Exec(ctx, ordersSQL); err != nil {
			return nil, err
		}
		const writers = 8
		var entries []entry
		for _, w := range []struct {
			name, limit string
			role        report.Role
			config      postgres.Config
		}{
			{notifiedNever, "", report.Limit, postgres.Config{Prefix: "never_", NotifyEvery: -1}},
			{notifiedEach, notifiedNever, report.Ours, postgres.Config{Prefix: "each_"}},
		} {
			s, err := b.storeWith(ctx, w.config)
			if err != nil {
				return nil, err
			}
			if err := b.listen(ctx, w.config.Prefix); err != nil {
				return nil, err
			}
			o, err := newOutbox(s)
			if err != nil {
				return nil, err
			}
			p := newPaced(1, b.n)
			publish := func(ctx context.Context, i int) error { return placePaced(ctx, o, p, i) }
			entries = append(entries, entry{
				name: w.name, role: w.role, limit: w.limit,
				prepare: func(ctx context.Context) error { return parallel(ctx, writers, 20*writers, publish) },
				run:     func(ctx context.Context) (report.Figures, error) { return nil, parallel(ctx, writers, b.n, publish) },
			})
		}
		return entries, nil
	},
}

// listen listens to an outbox, as a relay of another process does, until the suite ends.
func (b *bundle) listen(ctx context.Context, prefix string) error {
	s, err := b.storeWith(ctx, postgres.Config{Prefix: prefix})
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Listen(ctx) // returns nil
	}()
	b.after(func() {
		end()
		<-ended
	})
	return nil
}
