package saga_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store/memory"
)

// purchase is the data of the sagas.
type purchase struct {
	ID  string   `json:"id"`
	Log []string `json:"log"`
}

// stage is a shop in virtual time, and what happens there.
type stage struct {
	*testing.T
	config   saga.Config
	first    saga.Definition[purchase] // registered before the saga, if it has a name
	saga     saga.Definition[purchase]
	second   saga.Definition[purchase] // registered after it
	contract saga.Contract
	silent   []string         // topics whose participant is away
	answers  map[string]error // of participants, by message type of the command or undo
	act      func(s *stage)   // what happens next to the saga "42", or instead of it
	late     bool             // act starts it
	groups   bool             // events may also come from a broker that cannot say where it ends
	last     time.Duration

	store  *memory.Store
	box    *outbox.Outbox[*memory.Tx]
	engine *saga.Engine[*memory.Tx]
	sagas  map[string]*saga.Saga[*memory.Tx, purchase]
	began  time.Time
	mu     sync.Mutex
	lines  []string
}

// Write implements io.Writer, for logs.
func (s *stage) Write(text []byte) (int, error) {
	s.say("log: %s", text)
	return len(text), nil
}

// say adds to what has happened, with the time to the second.
func (s *stage) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, fmt.Sprintf("%s ", time.Since(s.began).Round(time.Second))+fmt.Sprintf(format, args...))
}

// play plays a stage in virtual time, with a field or without it, and returns what happens.
func play(t *testing.T, arrange func(s *stage) any, field string, with bool) (seen string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{
			T: t, config: saga.Config{Name: "shop", Logger: quiet}, sagas: make(map[string]*saga.Saga[*memory.Tx, purchase]),
			answers: make(map[string]error), last: 10 * time.Minute, began: time.Now(), store: memory.New(memory.Config{}),
		}
		f := reflect.ValueOf(arrange(s)).Elem().FieldByName(field)
		if f.IsZero() {
			t.Fatal("the case does not set the field")
		}
		if !with {
			f.SetZero()
		}
		if err := s.run(); err != nil {
			s.say("error: %v", err)
		}
		seen = strings.Join(s.lines, "\n")
	})
	return seen
}

// run lets everything happen.
func (s *stage) run() (err error) {
	s.box, err = outbox.New(s.store, outbox.Config{Source: "shop", Hooks: []outbox.Hooks{{BeforePublish: func(_ context.Context, m *postrider.Message) error {
		s.say("%s on %s: %.60s", m.Type, m.Topic, m.Payload)
		return nil
	}}}})
	if err != nil {
		return err
	}
	if s.engine, err = saga.New(s.store, s.box, s.config); err != nil {
		return err
	}
	for _, d := range []saga.Definition[purchase]{s.first, s.saga, s.second} {
		if len(d.Steps) == 0 && d.Name == "" {
			continue
		}
		registered, err := saga.Register(s.engine, d)
		if err != nil {
			return err
		}
		if s.sagas[d.Name] == nil { // the first version is started
			s.sagas[d.Name] = registered
		}
	}
	if s.contract.Events != nil || s.contract.Name != "" {
		if err := saga.Track(s.engine, s.contract); err != nil {
			return err
		}
	}
	runs, err := s.relays()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(s.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	for _, run := range runs {
		running.Go(func() {
			if err := run(ctx); err != nil {
				s.Error(err)
			}
		})
	}
	if orders := s.sagas[s.saga.Name]; orders != nil && !s.late {
		s.start(orders, "42")
	}
	if s.act != nil {
		s.act(s)
	}
	time.Sleep(s.last - time.Since(s.began))
	synctest.Wait()
	s.report("42")
	s.report("p-1")
	return nil
}

// relays returns what runs the engine and the participants that are not away.
func (s *stage) relays() (run []func(context.Context) error, err error) {
	p, err := saga.NewParticipant[*memory.Tx](s.store, s.box, saga.ParticipantConfig{Name: "shop"})
	if err != nil {
		return nil, err
	}
	topics := append(s.engine.Topics(), s.engine.Topic())
	for _, step := range []saga.StepDefinition[purchase, string]{reserve, charge, ship} {
		undo := func(context.Context, *memory.Tx, purchase, string) error { return s.answers[step.UndoType()] }
		if step.Type() == ship.Type() {
			undo = nil
		}
		err = errors.Join(err, saga.Handle(p, step, func(_ context.Context, _ *memory.Tx, m postrider.Typed[purchase]) (string, error) {
			return "done for " + m.Data.ID, s.answers[step.Type()]
		}, undo))
		if !slices.Contains(s.silent, step.Topic()) {
			topics = append(topics, step.Topic())
		}
	}
	r, relayErr := relay.New(s.store, relay.Config{Name: "all", Topics: topics, MaxAttempts: 3, BackoffMax: time.Second, PollMax: 10 * time.Second, Logger: quiet, Observer: s.observer()})
	if err := errors.Join(err, relayErr); err != nil {
		return nil, err
	}
	err = errors.Join(s.engine.Relay(r), p.Relay(r))
	run = append(run, r.Run)
	if s.groups {
		consumer, consumerErr := s.consumer()
		err = errors.Join(err, consumerErr)
		run = append(run, consumer.Run)
	}
	return run, err
}

// observer notes what is dead-lettered.
func (s *stage) observer() *observe.Relay {
	return &observe.Relay{Attempted: func(_ context.Context, all observe.Attempted) {
		for _, a := range all.Attempts {
			if a.Outcome == observe.AttemptDead {
				s.say("dead-lettered %s: %s", a.Message.Type, a.Reason)
			}
		}
	}}
}

func (s *stage) consumer() (*inbox.Consumer[*memory.Tx], error) {
	broker, err := memorybroker.New(memorybroker.Config{})
	if err != nil {
		return nil, err
	}
	subscriber, err := broker.Subscriber(memorybroker.SubscriberConfig{Topics: s.engine.Topics(), Group: "events"})
	if err != nil {
		return nil, err
	}
	in, err := inbox.New[*memory.Tx](s.store)
	if err != nil {
		return nil, err
	}
	c, err := inbox.NewConsumer(in, subscriber, inbox.ConsumerConfig{Name: "events", Logger: quiet})
	if err != nil {
		return nil, err
	}
	return c, s.engine.Consume(c)
}

func (s *stage) inTx(f func(ctx context.Context, tx *memory.Tx) error) {
	if _, err := s.box.InTx(s.Context(), f); err != nil {
		s.say("error: %v", err)
	}
}

func (s *stage) start(of *saga.Saga[*memory.Tx, purchase], id string) {
	s.inTx(func(ctx context.Context, tx *memory.Tx) error {
		started, err := of.Start(ctx, tx, purchase{ID: id}, saga.ID(id))
		s.say("start of %s: %+v", id, started)
		return err
	})
}

func (s *stage) signal(text string) {
	s.inTx(func(ctx context.Context, tx *memory.Tx) error {
		return saga.Signal(ctx, tx, s.box, "shop", "42", reviewedOrder, text)
	})
}

// operate asks for an operation on an instance.
func (s *stage) operate(id string, o saga.Operation) {
	o.Actor, o.Reason = "ann", "test"
	s.inTx(func(ctx context.Context, tx *memory.Tx) error {
		_, err := s.engine.Operate(ctx, tx, id, o)
		return err
	})
}

// report says how an instance has ended up, and what is known about all.
func (s *stage) report(id string) {
	in, err := s.engine.Get(s.Context(), id)
	if err != nil {
		s.say("%s: %v", id, err)
		return
	}
	s.say("%s is %s, waits for %q, cause %+v, data %s", id, in.Status, in.Waiting, in.Cause, in.Data)
	for tr, err := range s.engine.History(s.Context(), id) {
		if err != nil {
			s.say("error: %v", err)
		}
		for _, e := range tr.Entries {
			s.say("history of %s: %s %s %s", id, e.Name, e.Step, e.Text)
		}
	}
	stored, err := s.store.ShowSaga(s.Context(), id)
	s.say("%s: saga %s v%d, key %q, state %s, error %v", id, stored.Saga, stored.Version, stored.Key, stored.State, err)
	reported, err := s.store.SagaDefinitions(s.Context())
	for _, d := range reported {
		s.say("definition %s: %s", d.Saga, d.Graph)
	}
	if err != nil {
		s.say("error: %v", err)
	}
}

// event publishes an event of the business process "p-1".
func (s *stage) event(event postrider.Definition[Order], o Order) {
	m, err := event.New(o)
	if err != nil {
		s.Fatal(err)
	}
	m.Headers = map[string]string{"postrider-saga": "p-1"}
	s.inTx(func(ctx context.Context, tx *memory.Tx) error {
		_, err := s.box.Publish(ctx, tx, m)
		return err
	})
	time.Sleep(time.Second)
}

// events publishes events, one after another.
func events(all ...postrider.Definition[Order]) func(s *stage) {
	return func(s *stage) {
		for _, e := range all {
			s.event(e, Order{})
		}
	}
}

var quiet = slog.New(slog.DiscardHandler)
