package relay_test

import (
	"context"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
)

// everyWay returns a relay that delivers messages of type "t" to h, in each way to deliver.
var everyWay = map[string]func(b *bundle, cfg relay.Config, h postrider.Handler) *relay.Relay{
	"handler": func(b *bundle, cfg relay.Config, h postrider.Handler) *relay.Relay {
		r := b.relay(cfg)
		handle(b.t, r, h)
		return r
	},
	"HandleTx": func(b *bundle, cfg relay.Config, h postrider.Handler) *relay.Relay {
		r := b.relay(cfg)
		handleTx(b.t, r, func(m *postrider.Message) error { return h(context.Background(), m) })
		return r
	},
	"publisher": func(b *bundle, cfg relay.Config, h postrider.Handler) *relay.Relay {
		cfg.Publisher = publisherFunc(func(ctx context.Context, msgs []*postrider.Message) []error {
			errs := make([]error, len(msgs))
			failed := make(map[string]*postrider.Message)
			for i, m := range msgs {
				if head := failed[m.Key]; head != nil {
					errs[i] = postrider.PredecessorFailed(head, errBoom)
				} else if errs[i] = h(ctx, m); errs[i] != nil && m.Key != "" {
					failed[m.Key] = m
				}
			}
			return errs
		})
		return b.relay(cfg)
	},
}
