package relay_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// panicking is a codec and a propagator that panic.
type panicking struct{ postrider.JSON }

func (panicking) Decode([]byte, any) error { panic("at the disco") }

func (panicking) Inject(context.Context, map[string]string) {}

func (panicking) Extract(context.Context, map[string]string) context.Context { panic("at the disco") }

// TestPanicAroundAHandlerIsAFailedAttempt: whatever function of the user's panics, it ends no worker, and the cause has the stack.
// size: a table of cases.
func TestPanicAroundAHandlerIsAFailedAttempt(t *testing.T) {
	t.Parallel()
	panics := func(context.Context, *postrider.Message) error { panic("at the disco") }
	type order struct{ Number int }
	orders := postrider.Define[order]("t")
	handled := func(context.Context, postrider.Typed[order]) error { return nil }
	delivered := publisherFunc(func(_ context.Context, msgs []*postrider.Message) []error { return make([]error, len(msgs)) })
	for name, tt := range map[string]struct {
		cfg    relay.Config
		handle func(r *relay.Relay) error
	}{
		"interceptor": {
			relay.Config{Interceptors: []relay.Interceptor{func(postrider.Handler) postrider.Handler { return panics }}},
			func(r *relay.Relay) error { return relay.Handle(r, orders, handled) },
		},
		"interceptor of publishing": {
			relay.Config{Publisher: delivered, PublishInterceptors: []relay.PublishInterceptor{func(relay.PublishFunc) relay.PublishFunc {
				return func(context.Context, []*postrider.Message) []error { panic("at the disco") }
			}}},
			func(*relay.Relay) error { return nil },
		},
		"codec": {
			relay.Config{},
			func(r *relay.Relay) error { return relay.Handle(r, orders.WithCodec(panicking{}), handled) },
		},
		"upcaster": {
			relay.Config{},
			func(r *relay.Relay) error {
				if err := relay.Handle(r, orders.WithSchemaVersion(2), handled); err != nil {
					return err
				}
				return relay.Upcast(r, orders, orders.WithSchemaVersion(2), func(order) (order, error) { panic("at the disco") })
			},
		},
		"propagator": {
			relay.Config{Propagator: panicking{}},
			func(r *relay.Relay) error { return relay.Handle(r, orders, handled) },
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t)
			m, err := orders.New(order{42})
			must(t, err)
			m.Topic, m.Source = "t", "s"
			b.publish(m)
			tt.cfg.MaxAttempts = 2
			r := b.relay(tt.cfg)
			must(t, tt.handle(r))
			b.start(r)
			pass(time.Hour)
			found := 0
			for l, err := range deadletter.New(b.store).ListDead(t.Context(), store.DeadFilter{}, 0, 0) {
				must(t, err)
				found++
				if !strings.Contains(l.Cause, "at the disco") || !strings.Contains(l.Cause, "panics_test.go") {
					t.Errorf("%s: cause %q", name, l.Cause)
				}
			}
			if found != 1 {
				t.Errorf("%s: %d dead letters, want 1: %+v", name, found, b.status())
			}
		})
	}
}
