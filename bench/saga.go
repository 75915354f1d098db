package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/bench/internal/report"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store/postgres"
)

// What the suites of sagas run: an order of three steps, whose participants update one row each.

// placedOrder is the data of the saga, 600 bytes of JSON.
type placedOrder struct {
	ID      string `json:"id"`
	Number  int    `json:"number"`
	Lines   int    `json:"lines,omitzero"`
	Note    string `json:"note"`
	Stock   string `json:"stock,omitzero"`
	Payment string `json:"payment,omitzero"`
	Parcel  string `json:"parcel,omitzero"`
}

func orderOf(number int) placedOrder {
	return placedOrder{ID: fmt.Sprint("order-", number), Number: number, Note: strings.Repeat("a", 540)}
}

// part is the data of commands and replies.
type part struct {
	ID     string `json:"id"`
	Number int    `json:"number"`
}

func partOf(o placedOrder) part { return part{o.ID, o.Number} }

var (
	reserveStock = saga.DefineStep[part, part]("stock.reserve").WithTopic("stock")
	chargeCard   = saga.DefineStep[part, part]("card.charge").WithTopic("cards")
	shipParcel   = saga.DefineStep[part, part]("parcel.ship").WithTopic("parcels").WithoutUndo()
	orderSteps   = []string{"reserve", "charge", "ship"}
)

// fulfilment is the saga of the suites.
func fulfilment() saga.Definition[placedOrder] {
	return saga.Definition[placedOrder]{Name: "fulfilment", Version: 1, Steps: []saga.Step[placedOrder]{
		saga.Request[placedOrder, part, part]{Name: "reserve", Step: reserveStock, Command: partOf, Timeout: time.Hour,
			Done: func(o *placedOrder, r part) { o.Stock = r.ID }},
		saga.Request[placedOrder, part, part]{Name: "charge", Step: chargeCard, Command: partOf, Timeout: time.Hour,
			Done: func(o *placedOrder, r part) { o.Payment = r.ID }},
		saga.Request[placedOrder, part, part]{Name: "ship", Step: shipParcel, Command: partOf, Timeout: time.Hour, Pivot: true,
			Done: func(o *placedOrder, r part) { o.Parcel = r.ID }},
	}}
}

// sagas is an engine on tables of its own.
type sagas struct {
	b      *bundle
	prefix string
	store  *postgres.Store
	box    *outbox.Outbox[pgx.Tx]
	engine *saga.Engine[pgx.Tx]
	orders *saga.Saga[pgx.Tx, placedOrder]

	observed atomic.Pointer[func(observe.Transitioned)]
	mu       sync.Mutex
	commands []map[string]string // the headers of the first command of each instance
}

var sagaTables atomic.Int64

// newSagas makes the tables of an engine that runs a saga. Its outbox has a number of partitions; 0 means the default.
func newSagas(ctx context.Context, b *bundle, d saga.Definition[placedOrder], partitions int) (*sagas, error) {
	s := &sagas{b: b, prefix: fmt.Sprintf("saga%d_", sagaTables.Add(1))}
	var err error
	if s.store, err = b.storeWith(ctx, postgres.Config{Prefix: s.prefix, Partitions: partitions}); err != nil {
		return nil, err
	}
	_, err = b.pool.Exec(ctx, fmt.Sprintf(`
create table %[1]sledger (step text not null, n int not null, done bigint not null, undone bigint not null, primary key (step, n)) with (fillfactor = 50);
insert into %[1]sledger select s, n, 0, 0 from unnest($1::text[]) s, generate_series(0, $2::int4 - 1) n`, s.prefix), pgx.QueryExecModeSimpleProtocol,
		orderSteps, effectRows)
	if err != nil {
		return nil, err
	}
	s.box, err = outbox.New(s.store, outbox.Config{Source: source, Hooks: []outbox.Hooks{{BeforePublish: s.notice}}})
	if err != nil {
		return nil, err
	}
	s.engine, err = saga.New(saga.Store[pgx.Tx](s.store), s.box, saga.Config{
		Name: "bench", Logger: slog.New(slog.DiscardHandler), Observer: &observe.Saga{Transitioned: s.transitioned},
	})
	if err != nil {
		return nil, err
	}
	s.orders, err = saga.Register(s.engine, d)
	return s, err
}

// effectRows is how many rows a step of a participant has.
const effectRows = 1000

func (s *sagas) transitioned(t observe.Transitioned) {
	if f := s.observed.Load(); f != nil {
		(*f)(t)
	}
}

// observe calls f for each transition from now on.
func (s *sagas) observe(f func(observe.Transitioned)) { s.observed.Store(&f) }

// notice keeps what a generator of replies needs to know.
func (s *sagas) notice(_ context.Context, m *postrider.Message) error {
	if m.Type == reserveStock.Type() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.commands = append(s.commands, m.Headers)
	}
	return nil
}

// start starts instances for orders, 100 in a transaction.
func (s *sagas) start(ctx context.Context, first, n int) error {
	for done := 0; done < n; done += 100 {
		_, err := s.box.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
			for i := done; i < min(done+100, n); i++ {
				if err := s.place(ctx, tx, first+i); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *sagas) place(ctx context.Context, tx pgx.Tx, number int) error {
	o := orderOf(number)
	_, err := s.orders.Start(ctx, tx, o, saga.ID(o.ID))
	return err
}

// reply is what a participant answers that has done a step.
func reply(command map[string]string, step string) *postrider.Message {
	return &postrider.Message{
		Type: "postrider.saga.reply", Topic: command["postrider-saga-reply"], Key: command["postrider-saga-key"],
		Payload: fmt.Appendf(nil, `{"id":"%s of %s","number":1}`, step, command["postrider-saga"]),
		Headers: map[string]string{
			"postrider-saga": command["postrider-saga"], "postrider-saga-run": command["postrider-saga-run"], "postrider-saga-step": step,
			"postrider-saga-token": command["postrider-saga-token"], "postrider-saga-attempt": "1", "postrider-saga-outcome": "done",
		},
	}
}

// answer publishes the replies to a step of all instances that were started, 100 in a transaction.
func (s *sagas) answer(ctx context.Context, step string) error {
	for from := 0; from < len(s.commands); from += 100 {
		msgs := make([]*postrider.Message, 0, 100)
		for _, command := range s.commands[from:min(from+100, len(s.commands))] {
			msgs = append(msgs, reply(command, step))
		}
		if _, err := s.box.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
			_, err := s.box.Publish(ctx, tx, msgs...)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// engineRelay is a relay that runs the engine.
func (s *sagas) engineRelay(c relay.Config) (*relay.Relay, error) {
	c.Name, c.Topics, c.Logger = "engine", []string{s.engine.Topic()}, slog.New(slog.DiscardHandler)
	r, err := relay.New(s.store, c)
	if err != nil {
		return nil, err
	}
	return r, s.engine.Relay(r)
}

// participants is a relay that runs the participants. A part of a hundred of the charges is refused.
func (s *sagas) participants() (*relay.Relay, error) {
	p, err := saga.NewParticipant(saga.Records[pgx.Tx](s.store), s.box, saga.ParticipantConfig{Name: "shop"})
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		saga.Handle(p, reserveStock, s.doer("reserve"), s.undoer("reserve")), saga.Handle(p, chargeCard, s.doer("charge"), s.undoer("charge")),
		saga.Handle(p, shipParcel, s.doer("ship"), nil))
	if err != nil {
		return nil, err
	}
	r, err := relay.New(s.store, relay.Config{
		Name: "participants", Topics: []string{"stock", "cards", "parcels"}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	return r, p.Relay(r)
}

// refusedOf is how many charges there are for one that is refused.
const refusedOf = 50

func refused(number int) bool { return number%refusedOf == refusedOf-1 }

func (s *sagas) doer(step string) func(context.Context, pgx.Tx, postrider.Typed[part]) (part, error) {
	update := fmt.Sprintf("update %sledger set done = done + 1 where step = '%s' and n = $1", s.prefix, step)
	return func(ctx context.Context, tx pgx.Tx, m postrider.Typed[part]) (part, error) {
		if step == "charge" && refused(m.Data.Number) {
			return part{}, saga.Refuse("limit", nil)
		}
		_, err := tx.Exec(ctx, update, m.Data.Number%effectRows)
		return part{ID: step + " of " + m.Data.ID}, err
	}
}

func (s *sagas) undoer(step string) func(context.Context, pgx.Tx, part, part) error {
	update := fmt.Sprintf("update %sledger set undone = undone + 1 where step = '%s' and n = $1", s.prefix, step)
	return func(ctx context.Context, tx pgx.Tx, command, _ part) error {
		_, err := tx.Exec(ctx, update, command.Number%effectRows)
		return err
	}
}

// ended checks that n instances ended, of which some were compensated, and that what was done and not undone is that of the others.
func (s *sagas) ended(ctx context.Context, n, compensated int, participants bool) error {
	var completed, back int
	err := s.b.pool.QueryRow(ctx, fmt.Sprintf(`select count(*) filter (where status = 'completed'), count(*) filter (where status = 'compensated')
		from %ssagas`, s.prefix)).Scan(&completed, &back)
	if err != nil {
		return err
	}
	if completed != n-compensated || back != compensated {
		return fmt.Errorf("%d instances completed and %d were compensated, of %d", completed, back, n)
	}
	if !participants {
		return nil
	}
	var wrong int
	err = s.b.pool.QueryRow(ctx, fmt.Sprintf(`select count(*) from (select sum(done - undone) as left from %sledger group by step) as e
		where e.left <> $1`, s.prefix), completed).Scan(&wrong)
	if err == nil && wrong > 0 {
		err = fmt.Errorf("%d of the steps do not have %d effects", wrong, completed)
	}
	return err
}

// runAll runs relays until done is closed, and stops them.
func runAll(ctx context.Context, done <-chan struct{}, relays ...*relay.Relay) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(relays))
	var all sync.WaitGroup
	for i, r := range relays {
		all.Go(func() {
			if errs[i] = runUntil(ctx, r, done); errs[i] != nil {
				cancel()
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// sagaColumns are those of suites that count instances or transitions.
var sagaColumns = []report.Column{
	{Figure: figureClient, Title: "client µs"}, {Figure: figureServer, Title: "server µs"}, {Figure: figureWAL, Title: "WAL B"},
}
