package postridertest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/postridertest"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// ledger is a service that ships orders.
type ledger struct {
	flow    *postridertest.Flow
	shipped map[string]int
	order   map[string][]int // by order: the totals, as they came
}

func newLedger(f *postridertest.Flow) *ledger {
	l := &ledger{flow: f, shipped: make(map[string]int), order: make(map[string][]int)}
	f.Consume("shipping", []string{"orders"}, func(c *inbox.Consumer[*memory.Tx]) error {
		return inbox.Handle(c, placed, l.ship)
	})
	return l
}

func (l *ledger) ship(ctx context.Context, tx *memory.Tx, m postrider.Typed[orderPlaced]) error {
	err := tx.OnCommit(func() {
		l.shipped[m.ID]++
		l.order[m.Data.OrderID] = append(l.order[m.Data.OrderID], m.Data.Total)
	})
	if err != nil {
		return err
	}
	_, err = l.flow.Outbox().Publish(ctx, tx, &postrider.Message{Type: "order.shipped", Key: m.Key})
	return err
}

// publish publishes 3 messages for each of 5 orders.
func publish(t *testing.T, f *postridertest.Flow) (ids []string) {
	t.Helper()
	for total := range 3 {
		for order := range 5 {
			m, err := placed.New(orderPlaced{OrderID: fmt.Sprint(order), Total: total})
			if err != nil {
				t.Fatal(err)
			}
			m.ID = fmt.Sprintf("%d-%d", order, total)
			f.Publish(m)
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// TestEachFault: a service that uses the inbox processes each message once and in order, whatever fails.
func TestEachFault(t *testing.T) {
	t.Parallel()
	postridertest.EachFault(t, func(t *testing.T, f *postridertest.Flow) {
		l := newLedger(f)
		ids := publish(t, f)
		f.Wait()
		for _, id := range ids {
			if l.shipped[id] != 1 {
				t.Errorf("message %s was processed %d times", id, l.shipped[id])
			}
		}
		for order, totals := range l.order {
			if !slices.Equal(totals, []int{0, 1, 2}) {
				t.Errorf("order %s: messages came as %v", order, totals)
			}
		}
		if dead := f.DeadLetters(); len(dead) > 0 {
			t.Errorf("dead letters: %+v", dead)
		}
		sent := make(map[string]bool)
		for _, m := range f.Broker().Messages("order.shipped") {
			sent[m.ID] = true
		}
		if len(sent) != len(ids) {
			t.Errorf("%d messages were published by the handler, want %d", len(sent), len(ids))
		}
	})
}

// TestFlowWarnsOfNothing: what a flow configures gives no reason for a warning, which users would take for one about their service.
func TestFlowWarnsOfNothing(t *testing.T) {
	t.Parallel()
	postridertest.Run(t, func(t *testing.T, f *postridertest.Flow) {
		newLedger(f)
		publish(t, f)
		f.Wait()
		notes, err := stored.Notes(t.Context(), f.Store(), stored.NoteWindow)
		if err != nil || len(notes) > 0 {
			t.Errorf("notes: %v, %v", notes, err)
		}
	})
}

// TestFaultsHappen: each fault has its effect.
func TestFaultsHappen(t *testing.T) {
	t.Parallel()
	type seen struct {
		calls, effects int // of the handler; those that committed
		took           time.Duration
	}
	for fault, happened := range map[postridertest.Fault]func(f *postridertest.Flow, s seen) bool{
		postridertest.LostAnswer: func(f *postridertest.Flow, _ seen) bool {
			return len(f.Broker().Messages("orders")) > 15
		},
		postridertest.Duplicate: func(f *postridertest.Flow, _ seen) bool {
			return len(f.Broker().Messages("orders")) == 30
		},
		postridertest.CrashBeforeCommit: func(_ *postridertest.Flow, s seen) bool {
			return s.calls > 15 && s.effects == 15
		},
		// The crash also ends transactions of other keys, so there may be more calls than effects.
		postridertest.CrashBeforeAck: func(_ *postridertest.Flow, s seen) bool {
			return s.effects == 15 && s.took >= time.Second
		},
		postridertest.PoisonedMessage: func(f *postridertest.Flow, _ seen) bool {
			status, err := f.Store().Status(context.Background())
			return err == nil && slices.ContainsFunc(status.Relays, func(r store.RelayStatus) bool { return r.Name == "shipping" && r.Dead.N == 1 })
		},
		postridertest.BrokerDown: func(_ *postridertest.Flow, s seen) bool { return s.took >= 30*time.Second },
	} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			postridertest.Run(t, func(t *testing.T, f *postridertest.Flow) {
				var calls, effects atomic.Int64 // keys are processed in parallel
				f.Consume("shipping", []string{"orders"}, func(c *inbox.Consumer[*memory.Tx]) error {
					return c.HandleFunc("order.placed", func(_ context.Context, tx *memory.Tx, _ *postrider.Message) error {
						calls.Add(1)
						return tx.OnCommit(func() { effects.Add(1) })
					})
				})
				publish(t, f)
				began := time.Now()
				f.Wait()
				s := seen{int(calls.Load()), int(effects.Load()), time.Since(began)}
				if !happened(f, s) {
					t.Errorf("%+v, %d messages at the broker", s, len(f.Broker().Messages("orders")))
				}
			}, fault)
		})
	}
}

// TestFlowOfFailingHandler: retries and dead letters happen in virtual time, and other keys continue.
func TestFlowOfFailingHandler(t *testing.T) {
	t.Parallel()
	postridertest.EachFault(t, func(t *testing.T, f *postridertest.Flow) {
		done := 0
		f.Consume("shipping", []string{"orders"}, func(c *inbox.Consumer[*memory.Tx]) error {
			return inbox.Handle(c, placed, func(_ context.Context, tx *memory.Tx, m postrider.Typed[orderPlaced]) error {
				if m.Data.OrderID == "3" && m.Data.Total == 1 {
					return errors.New("no such order")
				}
				return tx.OnCommit(func() { done++ })
			})
		})
		publish(t, f)
		f.Wait()
		dead := f.DeadLetters()
		if done != 14 || len(dead) != 1 || dead[0].Message.ID != "3-1" || dead[0].Reason != inbox.AttemptsExhausted {
			t.Errorf("%d processed, dead letters %+v; want 14, and that of 3-1", done, dead)
		}
	})
}
