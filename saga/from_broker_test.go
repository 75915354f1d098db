package saga_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// fromBroker is an engine that takes the events of its contracts from a broker, and from its own outbox.
type fromBroker struct {
	*testing.T
	engine *saga.Engine[*memory.Tx]
	box    *outbox.Outbox[*memory.Tx]
	db     *memory.Store
	broker *memorybroker.Broker
}

// runFromBroker runs such an engine, and the handlers of services, for contracts. At the end, nothing may be dead-lettered.
func runFromBroker(
	t *testing.T, topics []string, handle func(r *relay.Relay, p *saga.Participant[*memory.Tx]) error, contracts ...saga.Contract,
) *fromBroker {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	db := memory.New(memory.Config{})
	box, err := outbox.New(db, outbox.Config{Source: "shop"})
	must(err)
	engine, err := saga.New(db, box, saga.Config{Name: "shop"})
	must(err)
	for _, c := range contracts {
		must(saga.Track(engine, c))
	}
	p, err := saga.NewParticipant(db, box, saga.ParticipantConfig{Name: "shop"})
	must(err)
	r, err := relay.New(db, relay.Config{Name: "engine", Topics: append(topics, append(engine.Topics(), engine.Topic())...)})
	must(err)
	broker, err := memorybroker.New(memorybroker.Config{})
	must(err)
	subscriber, err := broker.Subscriber(memorybroker.SubscriberConfig{Topics: engine.Topics()})
	must(err)
	in, err := inbox.New[*memory.Tx](db)
	must(err)
	events, err := inbox.NewConsumer(in, subscriber, inbox.ConsumerConfig{Name: "events"})
	must(err)
	must(errors.Join(engine.Relay(r), engine.Consume(events), handle(r, p)))
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{r.Run, events.Run} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		stop()
		running.Wait()
		for d, err := range deadletter.New(db).ListDead(context.Background(), store.DeadFilter{}, 0, 0) {
			t.Errorf("dead letter %s: %s (%v)", d.Message.Type, d.Cause, err)
		}
	})
	return &fromBroker{t, engine, box, db, broker}
}

func (w *fromBroker) publish(m *postrider.Message) {
	w.Helper()
	if errs := w.broker.Publish(w.Context(), []*postrider.Message{m}); errs != nil {
		w.Fatal(errs)
	}
}

// sees publishes an event of a business process.
func (w *fromBroker) sees(process string, event postrider.Definition[Order], data Order) {
	w.Helper()
	m, err := event.New(data)
	if err != nil {
		w.Fatal(err)
	}
	m.ID, m.Headers = postrider.NewID(), map[string]string{"postrider-saga": process}
	w.publish(m)
}

// says asks for an operation on an instance.
func (w *fromBroker) says(id string, o saga.Operation) {
	w.Helper()
	o.Actor, o.Reason = "ann", "test"
	if _, err := w.box.InTx(w.Context(), func(ctx context.Context, tx *memory.Tx) error {
		_, err := w.engine.Operate(ctx, tx, id, o)
		return err
	}); err != nil {
		w.Fatal(err)
	}
}

// instances are all that there are, by saga.
func (w *fromBroker) instances() map[string]store.SagaSummary {
	w.Helper()
	list, err := w.db.ListSagas(w.Context(), store.SagaFilter{}, "", 100)
	if err != nil {
		w.Fatal(err)
	}
	found := make(map[string]store.SagaSummary)
	for _, s := range list {
		found[s.Saga] = s
	}
	if len(found) != len(list) {
		w.Fatalf("the instances are %+v, want one for each saga", list)
	}
	return found
}

// undo handles a request for an undo of what a service has not done by Do.
func undo(r *relay.Relay, p *saga.Participant[*memory.Tx], request, undone postrider.Definition[Order]) error {
	return relay.HandleTx(r, request, func(ctx context.Context, tx *memory.Tx, m postrider.Typed[Order]) error {
		return p.Undo(ctx, tx, request.Type(), func(context.Context, *postrider.Message) (*postrider.Message, error) { return undone.New(m.Data) })
	})
}

// TestForeignEvent: an event of a sender that does not keep the limits of messages begins an instance like any other. It times out, and
// services undo what belongs to it.
func TestForeignEvent(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long", 100)
	for name, m := range map[string]postrider.Message{
		"correlation and tenant": {ID: "e-1", CorrelationID: long, Tenant: long},
		"ID and key":             {ID: long, Key: long},
		"NUL and no UTF-8":       {ID: "\x00", Key: "\xff", Tenant: "\x00"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := FulfilmentByEvents
				c.Deadline = time.Minute
				topics := []string{CancelOrder.Topic(), ReleaseStock.Topic(), RefundCard.Topic()}
				w := runFromBroker(t, topics, func(r *relay.Relay, p *saga.Participant[*memory.Tx]) error {
					return errors.Join(undo(r, p, CancelOrder, OrderCancelled), undo(r, p, ReleaseStock, StockReleased), undo(r, p, RefundCard, CardRefunded))
				}, c)
				created, err := OrderCreated.New(Order{})
				if err != nil {
					t.Fatal(err)
				}
				created.ID, created.CorrelationID, created.Tenant, created.Key = m.ID, m.CorrelationID, m.Tenant, m.Key
				w.publish(created)
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				if got := w.instances()[c.Name]; got.Status != saga.Compensated {
					t.Errorf("the instance is %s and waits for %q, want it compensated", got.Status, got.Waiting)
				}
			})
		})
	}
}

// TestOperatorsDoNotWaitForSources: while events cannot be read, the timer of an instance waits, and its operators do not. What they ask for
// happens in the order in which they do.
func TestOperatorsDoNotWaitForSources(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := FulfilmentByEvents
		c.Deadline = time.Minute
		w := runFromBroker(t, nil, func(*relay.Relay, *saga.Participant[*memory.Tx]) error { return nil }, c)
		subscriber, err := w.broker.Subscriber(memorybroker.SubscriberConfig{Topics: w.engine.Topics()})
		if err != nil {
			t.Fatal(err)
		}
		in, err := inbox.New[*memory.Tx](w.db)
		if err != nil {
			t.Fatal(err)
		}
		down, err := inbox.NewConsumer(in, subscriber, inbox.ConsumerConfig{Name: "down"}) // it never runs
		if err := errors.Join(err, w.engine.Consume(down)); err != nil {
			t.Fatal(err)
		}
		w.sees("p-1", OrderCreated, Order{})
		time.Sleep(time.Hour)
		for _, verb := range []saga.Verb{saga.Pause, saga.Resume, saga.Pause, saga.Resume, saga.Abandon} {
			w.says("p-1", saga.Operation{Verb: verb})
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := w.instances()[c.Name]; got.Status != saga.Abandoned {
			t.Errorf("the instance is %s, want it abandoned", got.Status)
		}
		for h, err := range w.engine.History(t.Context(), "p-1") {
			if err != nil || len(h.Entries) > 0 && h.Entries[0].Name == "operator.refused" {
				t.Errorf("refused: %s (%v)", h.Note, err)
			}
		}
	})
}

// TestUnreadableForOneContract: an event that one contract cannot read is no dead letter, since another contract knows it too.
func TestUnreadableForOneContract(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		numbered := postrider.Define[struct{ SKU int }](StockReserved.Type()).WithTopic(StockReserved.Topic())
		lines := saga.Contract{Name: "lines", Version: 1, Events: []saga.Event{
			{On: OrderCreated, Service: "orders", Start: true, NoUndo: true},
			{
				On: numbered, Service: "inventory", After: saga.Defs{OrderCreated}, NoUndo: true, End: true,
				Items: saga.ItemsOf(OrderCreated, func(o Order) []string { return []string{o.SKU} }),
				Item:  saga.ItemFuncs{saga.ItemOf(numbered, func(o struct{ SKU int }) string { return strings.Repeat("x", o.SKU) })},
			},
		}}
		w := runFromBroker(t, nil, func(*relay.Relay, *saga.Participant[*memory.Tx]) error { return nil }, FulfilmentByEvents, lines)
		for _, event := range []postrider.Definition[Order]{OrderCreated, StockReserved, CardCharged, OrderConfirmed} {
			w.sees("p-1", event, Order{SKU: "chair"})
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		found := w.instances()
		if got := found[FulfilmentByEvents.Name]; got.Status != saga.Completed {
			t.Errorf("the instance of the other contract is %s and waits for %q, want it completed", got.Status, got.Waiting)
		}
		if got := found[lines.Name]; got.Status != saga.Stuck || got.Waiting != StockReserved.Type()+", "+StockReserved.Type()+"[chair]" {
			t.Errorf("the instance is %s and waits for %q, want it stuck", got.Status, got.Waiting)
		}
	})
}
