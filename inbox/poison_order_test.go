package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// TestPoisonAfterAFailedMessage: message 1 of a key fails and is parked, and in the same transaction message 2 of the key, which is no
// message, is dead-lettered. Whatever an operator does later, 1 comes before 2, and with HoldKey, 1 does not wait for the decision about 2.
func TestPoisonAfterAFailedMessage(t *testing.T) {
	for name, onDead := range map[string]relay.OnDead{"continue": relay.ContinueKey, "hold": relay.HoldKey} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, b := memory.New(memory.Config{}), newBroker(t)
				var handled text
				msg := func(id, payload string) *postrider.Message {
					return &postrider.Message{ID: id, Type: "t", Topic: "t", Source: "s", Key: "k", Time: time.Now(), Payload: []byte(payload)}
				}
				if err := errors.Join(b.Publish(t.Context(), []*postrider.Message{msg("1", "{}")})...); err != nil {
					t.Fatal(err)
				}
				b.Poison(msg("2", "no message"))
				startedOn(t, s, b, memorybroker.SubscriberConfig{}, inbox.ConsumerConfig{LocalAttempts: 1, Batch: 10, OnDead: onDead},
					func(_ context.Context, _ *memory.Tx, m *postrider.Message) error {
						if m.ID == "1" && m.Attempt == 1 {
							return postrider.Retry(time.Minute, errors.New("not yet"))
						}
						fmt.Fprintf(&handled, "[%s]", m.ID)
						return nil
					})
				if onDead == relay.HoldKey {
					time.Sleep(time.Hour)
					if handled.String() != "[1]" {
						t.Errorf("an hour later %v were handled, want 1, whose next attempt was due after a minute", handled.String())
					}
				}
				dead := deadletter.New(s)
				for l, err := range dead.ListDead(t.Context(), store.DeadFilter{}, 0, 0) {
					if err != nil {
						t.Fatal(err)
					}
					if _, err := dead.EditDead(t.Context(), l.Number, store.Edit{Payload: []byte("{}"), By: "olga", Why: "repaired"}); err != nil {
						t.Fatal(err)
					}
				}
				if n, err := dead.RedriveDead(t.Context(), store.DeadFilter{}, "olga", 0); n != 1 || err != nil {
					t.Fatal(n, err)
				}
				time.Sleep(time.Hour)
				if handled.String() != "[1][2]" {
					t.Errorf("after the redrive the key was handled in the order %v, want [1][2]", handled.String())
				}
			})
		})
	}
}

// TestPoisonOfAHeldKeyHoldsIt: with HoldKey nothing of the key is handled past an open dead letter, also if the key was held for an
// earlier message when the dead letter was written (one message in a transaction).
func TestPoisonOfAHeldKeyHoldsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := memory.New(memory.Config{}), newBroker(t)
		var handled text
		msg := func(id string) *postrider.Message {
			return &postrider.Message{ID: id, Type: "t", Topic: "t", Source: "s", Key: "k", Time: time.Now(), Payload: []byte("{}")}
		}
		publish := func(id string) {
			if err := errors.Join(b.Publish(t.Context(), []*postrider.Message{msg(id)})...); err != nil {
				t.Fatal(err)
			}
		}
		publish("1")
		b.Poison(msg("2"))
		publish("3")
		startedOn(t, s, b, memorybroker.SubscriberConfig{}, inbox.ConsumerConfig{LocalAttempts: 1, OnDead: relay.HoldKey},
			func(_ context.Context, _ *memory.Tx, m *postrider.Message) error {
				if m.ID == "1" && m.Attempt == 1 {
					return postrider.Retry(time.Minute, errors.New("not yet"))
				}
				fmt.Fprintf(&handled, "[%s]", m.ID)
				return nil
			})
		time.Sleep(time.Hour)
		if handled.String() != "[1]" {
			t.Errorf("handled %v, want [1]: the dead letter of 2 is open and holds the key", handled.String())
		}
	})
}

// heldMeanwhile is a store in which another process parks a message of the key while a transaction is about to dead-letter one.
type heldMeanwhile struct {
	*memory.Store
	other *postrider.Message
}

func (s *heldMeanwhile) Park(ctx context.Context, tx *memory.Tx, consumer string, failed []store.ParkRequest) error {
	if m := s.other; m != nil {
		s.other = nil
		own, err := s.Begin(ctx)
		if err == nil {
			err = errors.Join(s.Store.Park(ctx, own, consumer, []store.ParkRequest{{Message: m, Reason: store.ParkRetry, After: time.Minute}}), s.Commit(ctx, own))
		}
		if err != nil {
			return err
		}
	}
	return s.Store.Park(ctx, tx, consumer, failed)
}

// TestKeyThatIsHeldMeanwhile: the key is held by another process after this one has found it free. The dead letter comes at its turn all
// the same.
func TestKeyThatIsHeldMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		msg := func(id string) *postrider.Message {
			return &postrider.Message{ID: id, Type: "t", Topic: "t", Source: "s", Key: "k", Time: time.Now(), Payload: []byte("{}")}
		}
		s := &heldMeanwhile{memory.New(memory.Config{}), msg("1")}
		var handled text
		b.Poison(msg("2"))
		if err := errors.Join(b.Publish(t.Context(), []*postrider.Message{msg("3")})...); err != nil {
			t.Fatal(err)
		}
		startedOn(t, s, b, memorybroker.SubscriberConfig{}, inbox.ConsumerConfig{OnDead: relay.HoldKey},
			func(_ context.Context, _ *memory.Tx, m *postrider.Message) error {
				fmt.Fprintf(&handled, "[%s]", m.ID)
				return nil
			})
		dead := deadletter.New(s)
		count := func() int64 {
			n, err := dead.CountDead(t.Context(), store.DeadFilter{})
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		time.Sleep(30 * time.Second)
		if count() != 0 || handled.String() != "" {
			t.Errorf("%d dead letters, handled %v; want nothing before the message that holds the key", count(), handled.String())
		}
		time.Sleep(time.Hour)
		if count() != 1 || handled.String() != "[1]" {
			t.Errorf("%d dead letters, handled %v; want [1], and the key held for the dead letter", count(), handled.String())
		}
		if n, err := dead.RedriveDead(t.Context(), store.DeadFilter{}, "olga", 0); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		time.Sleep(time.Hour)
		if handled.String() != "[1][2][3]" {
			t.Errorf("handled %v, want [1][2][3]", handled.String())
		}
	})
}
