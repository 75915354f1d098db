package scenariotest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
)

// The messages of the choreographed shop. Each service publishes on its own topic.
var (
	orderCreated   = postrider.Define[item]("order.created").WithTopic("orders").WithKey(orderKey)
	orderConfirmed = postrider.Define[item]("order.confirmed").WithTopic("orders").WithKey(orderKey)
	cancelOrder    = postrider.Define[item]("order.cancel").WithTopic("requests")
	orderCancelled = postrider.Define[item]("order.cancelled").WithTopic("orders").WithKey(orderKey)
	stockReserved  = postrider.Define[item]("stock.reserved").WithTopic("inventory").WithKey(orderKey)
	outOfStock     = postrider.Define[item]("stock.unavailable").WithTopic("inventory").WithKey(orderKey)
	releaseStock   = postrider.Define[item]("stock.release").WithTopic("requests")
	stockReleased  = postrider.Define[item]("stock.released").WithTopic("inventory").WithKey(orderKey)
	cardCharged    = postrider.Define[item]("card.charged").WithTopic("payments").WithKey(orderKey)
	cardDeclined   = postrider.Define[item]("card.declined").WithTopic("payments").WithKey(orderKey)
	refundCard     = postrider.Define[item]("card.refund").WithTopic("requests")
	cardRefunded   = postrider.Define[item]("card.refunded").WithTopic("payments").WithKey(orderKey)
)

func orderKey(i item) string { return "order/" + i.ID }

// byEvents is the contract of the choreographed shop.
func byEvents(change ...func(c *saga.Contract)) saga.Contract {
	c := saga.Contract{
		Name: "by-events", Version: 1,
		Events: []saga.Event{
			{On: orderCreated, Service: "orders", Start: true, Undo: cancelOrder, Undone: orderCancelled},
			{On: stockReserved, Service: "inventory", After: saga.Defs{orderCreated}, Fails: saga.Defs{outOfStock}, Undo: releaseStock, Undone: stockReleased},
			{On: cardCharged, Service: "payments", After: saga.Defs{stockReserved}, Fails: saga.Defs{cardDeclined}, Undo: refundCard, Undone: cardRefunded},
			{On: orderConfirmed, Service: "orders", After: saga.Defs{cardCharged}, End: true},
		},
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

func observed(c *saga.Contract) { c.Compensate = saga.Observe }

// choreography is the shop with services that know events only: each has a consumer, and a relay for what it publishes.
type choreography[Tx any] struct {
	*world[Tx]
	broker *memorybroker.Broker
	p      *saga.Participant[Tx]
}

func (w *world[Tx]) choreograph() *choreography[Tx] {
	broker, err := memorybroker.New(memorybroker.Config{})
	w.must(err)
	p, err := saga.NewParticipant(saga.Records[Tx](w.store), w.box, saga.ParticipantConfig{Name: "services", Logger: quiet})
	w.must(err)
	s := &choreography[Tx]{w, broker, p}
	for _, topic := range []string{"orders", "requests", "inventory", "payments"} {
		s.publishes(topic)
	}
	w.run("ledger", []string{"effects"}, w.count)
	return s
}

// publishes runs the relay that publishes a topic.
func (s *choreography[Tx]) publishes(topic string) {
	s.send("out "+topic, s.store, []string{topic}, s.broker)
}

// consume runs a consumer that reads topics as logs.
func (s *choreography[Tx]) consume(name string, topics []string, register func(c *inbox.Consumer[Tx]) error) {
	c := s.consumer(name, topics)
	s.must(register(c))
	s.keepRunning(name, c.Run)
}

func (s *choreography[Tx]) consumer(name string, topics []string, around ...relay.Interceptor) *inbox.Consumer[Tx] {
	subscriber, err := s.broker.Subscriber(memorybroker.SubscriberConfig{Topics: topics, Partitions: 2})
	s.must(err)
	in, err := inbox.New[Tx](s.store)
	s.must(err)
	c, err := inbox.NewConsumer(in, subscriber, inbox.ConsumerConfig{
		Name: name, Logger: quiet, Unhandled: inbox.SkipUnhandled, Interceptors: around,
	})
	s.must(err)
	return c
}

// handler is one of a service.
type handler[Tx any] = func(ctx context.Context, tx Tx, m postrider.Typed[item]) error

// does handles an event by a step that publishes another one; what onDo says may refuse it with failure.
func (s *choreography[Tx]) does(step string, done, failure postrider.Definition[item]) handler[Tx] {
	return func(ctx context.Context, tx Tx, m postrider.Typed[item]) error {
		return s.p.Do(ctx, tx, step, func(ctx context.Context) (*postrider.Message, error) {
			if err := effect(ctx, tx, s.box, "do", step); err != nil {
				return nil, err
			}
			s.mu.Lock()
			f := s.do[step]
			s.mu.Unlock()
			if f != nil && f(tx, m.Message) != nil {
				return saga.RefuseWith(failure.New(m.Data))
			}
			return done.New(m.Data)
		})
	}
}

// undoes handles a request, or the news of a failure, by undoing a step.
func (s *choreography[Tx]) undoes(step string, done, undone postrider.Definition[item]) handler[Tx] {
	return func(ctx context.Context, tx Tx, m postrider.Typed[item]) error {
		return s.p.Undo(ctx, tx, step, func(ctx context.Context, did *postrider.Message) (*postrider.Message, error) {
			if did == nil {
				return undone.New(m.Data)
			}
			was, err := done.Decode(did)
			if err != nil {
				return nil, err
			}
			if err := effect(ctx, tx, s.box, "undo", step); err != nil {
				return nil, err
			}
			return undone.New(was.Data)
		})
	}
}

// cancels handles a request, or the news of a failure, by cancelling the order, which then is not confirmed any more.
func (s *choreography[Tx]) cancels() handler[Tx] {
	return s.undoes("confirm", orderConfirmed, orderCancelled)
}

func (s *choreography[Tx]) runInventory() {
	s.consume("inventory", []string{"orders", "payments", "requests"}, func(c *inbox.Consumer[Tx]) error {
		return handleAll(c, map[*postrider.Definition[item]]handler[Tx]{
			&orderCreated: s.does("reserve", stockReserved, outOfStock), &releaseStock: s.undoes("reserve", stockReserved, stockReleased),
			&cardDeclined: s.ifID("o", s.undoes("reserve", stockReserved, stockReleased)),
		})
	})
}

func (s *choreography[Tx]) runPayments() {
	s.consume("payments", []string{"inventory", "requests"}, func(c *inbox.Consumer[Tx]) error {
		return handleAll(c, map[*postrider.Definition[item]]handler[Tx]{
			&stockReserved: s.does("charge", cardCharged, cardDeclined), &refundCard: s.undoes("charge", cardCharged, cardRefunded),
		})
	})
}

func (s *choreography[Tx]) runOrders() {
	s.consume("orders", []string{"inventory", "payments", "requests"}, func(c *inbox.Consumer[Tx]) error {
		return handleAll(c, map[*postrider.Definition[item]]handler[Tx]{
			&cardCharged: s.does("confirm", orderConfirmed, orderConfirmed), &cancelOrder: s.cancels(),
			&outOfStock: s.ifID("ox", s.cancels()), &cardDeclined: s.ifID("ox", s.cancels()),
		})
	})
}

// ifID lets a service react to failures of orders whose ID begins with one of these characters.
func (s *choreography[Tx]) ifID(begins string, h handler[Tx]) handler[Tx] {
	return func(ctx context.Context, tx Tx, m postrider.Typed[item]) error {
		if !strings.Contains(begins, m.Data.ID[:1]) {
			return nil
		}
		return h(ctx, tx, m)
	}
}

func handleAll[Tx any](c *inbox.Consumer[Tx], handlers map[*postrider.Definition[item]]handler[Tx]) error {
	for d, h := range handlers {
		if err := inbox.Handle(c, *d, h); err != nil {
			return err
		}
	}
	return nil
}

// runTracker runs the tracker of a contract: the engine's relay, for its timers, and a consumer of the events.
func (s *choreography[Tx]) runTracker(c saga.Contract) {
	s.must(saga.Track(s.engine, c))
	s.run("engine", []string{s.engine.Topic()}, s.engine.Relay)
	s.consume("tracker", s.engine.Topics(), s.engine.Consume)
}

// order publishes the event that begins an instance, and returns the ID of the instance.
func (s *choreography[Tx]) order(id string) (instance string) {
	s.inTx(func(ctx context.Context, tx Tx) error {
		m, err := orderCreated.New(item{id})
		if err != nil {
			return err
		}
		m.ID = fmt.Sprintf("created-%s", id)
		instance = m.ID
		_, err = s.box.Publish(ctx, tx, m)
		return err
	})
	return instance
}

// endsAs waits until an instance exists and has ended, and checks its status.
func (s *choreography[Tx]) endsAs(id string, want saga.Status) instance {
	s.Helper()
	r := s.is(id, "the end", func(r instance) bool {
		return r.Status == saga.Completed || r.Status == saga.Compensated || r.Status == saga.Abandoned
	})
	if r.Status != want {
		s.Fatalf("instance %s ended %s, want %s; history:\n%s", id, r.Status, want, s.historyText(id))
	}
	return r
}

// is waits until an instance exists and satisfies a condition.
func (s *choreography[Tx]) is(id, what string, is func(r instance) bool) instance {
	s.Helper()
	for begun := time.Now(); ; rest(begun) {
		r, err := s.engine.Get(s.Context(), id)
		if err == nil && is(r) {
			return r
		}
		if time.Since(begun) > patience {
			if err != nil {
				s.Fatal(err)
			}
			s.Fatalf("instance %s is %s and waits for %q, want %s; history:\n%s", id, r.Status, r.Waiting, what, s.historyText(id))
		}
	}
}
