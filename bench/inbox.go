package main

import (
	"context"

	"github.com/postrider/postrider/bench/internal/inboxes"
	"github.com/postrider/postrider/bench/internal/report"
)

// inboxSuite compares consumers, and a relay with transactions, with hand-written loops over the same source.
var inboxSuite = suite{
	name: "inbox", title: "Process messages with an effect of one row", figure: figureRate, unit: "msg/s", also: usual, share: 0.2, long: true,
	setup: func(ctx context.Context, b *bundle) ([]entry, error) {
		if err := b.database(ctx); err != nil {
			return nil, err
		}
		var entries []entry
		for i := range inboxes.Ways {
			w := &inboxes.Ways[i]
			e := entry{name: w.Name, role: report.Limit, limit: w.Hand, peer: w.Other, messages: b.n}
			if w.Hand != "" {
				e.role = report.Ours
			}
			if w.Single {
				e.messages /= 5
			}
			e.run = func(ctx context.Context) (report.Figures, error) {
				rate, err := w.Run(ctx, b.pool, e.messages)
				return report.Figures{figureRate: rate}, err
			}
			entries = append(entries, e)
		}
		return entries, nil
	},
}
