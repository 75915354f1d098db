package faults

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider"
	natsbroker "github.com/postrider/postrider/broker/nats"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
	mysqlstore "github.com/postrider/postrider/store/mysql"
	"github.com/postrider/postrider/store/postgres"
)

// The roles of the processes of a shop whose orders are sagas. The engine, the stock and the parcels share a database; the cards
// have their own, on the other side of a broker.
const (
	sagaEngine  role = "saga engine"
	sagaWires   role = "saga wires" // publishes commands and replies to the broker
	sagaStock   role = "saga stock"
	sagaCards   role = "saga cards"
	sagaParcels role = "saga parcels"
)

// sagaTimeout is the time for an answer. It is shorter than the pause after a process is killed, so that faults cause timeouts.
const sagaTimeout = 4 * time.Second

// sagaStores is a store of the shop.
type sagaStores[Tx any] interface {
	stores[Tx]
	store.TxSettler[Tx]
	saga.Store[Tx]
	saga.Records[Tx]
}

// shopOrder is the data of a saga. Mode is what goes wrong.
type shopOrder struct {
	ID       string
	Mode     mode
	Payment  string
	Booked   bool
	Parcel   string
	Informed bool
}

type mode string

const (
	declined  mode = "declined"  // the card is refused
	noParcel  mode = "no parcel" // the pivot is refused
	slowCard  mode = "slow"      // the charge is done after its timeout
	lateReply mode = "late"      // its reply arrives after its timeout
	overtaken mode = "overtaken" // its command arrives after its undo
)

type shopItem struct {
	ID   string
	Mode mode
}

var (
	reserveGoods = saga.DefineStep[shopItem, shopItem]("stock.reserve").WithTopic("stock")
	chargeCard   = saga.DefineStep[shopItem, shopItem]("card.charge").WithTopic("cards")
	sendMail     = saga.DefineStep[shopItem, shopItem]("mail.send").WithTopic("cards").WithoutUndo()
	shipParcel   = saga.DefineStep[shopItem, shopItem]("parcel.ship").WithTopic("parcels").WithoutUndo()
)

// newShop returns an engine with the saga of an order: two steps in parallel, one in the engine's database, the pivot, and one that
// must follow it.
func newShop[Tx any](s sagaStores[Tx], session func(Tx) session, logger *slog.Logger) (*outbox.Outbox[Tx], *saga.Engine[Tx], *saga.Saga[Tx, shopOrder], error) {
	box, err := outbox.New[Tx](s, outbox.Config{Source: "shop", Hooks: []outbox.Hooks{{BeforePublish: delayed}}})
	if err != nil {
		return nil, nil, nil, err
	}
	e, err := saga.New[Tx](s, box, saga.Config{
		Name: "shop", StepTimeout: sagaTimeout, UndoTimeout: sagaTimeout, UndoAttempts: 200, LocalTimeout: 2 * time.Second,
		BackoffBase: 100 * time.Millisecond, BackoffMax: 10 * time.Second, Logger: logger,
	})
	if err != nil {
		return nil, nil, nil, err
	}
	ask := func(name string, step saga.StepDefinition[shopItem, shopItem], done func(*shopOrder, shopItem)) saga.Request[shopOrder, shopItem, shopItem] {
		return saga.Request[shopOrder, shopItem, shopItem]{
			Name: name, Step: step, Command: func(o shopOrder) shopItem { return shopItem{o.ID, o.Mode} }, Done: done,
		}
	}
	book := func(delta int) func(context.Context, Tx, *shopOrder) error {
		return func(ctx context.Context, tx Tx, o *shopOrder) error {
			o.Booked = delta > 0
			return record(ctx, session(tx), o.ID, "book", delta)
		}
	}
	ship := ask("ship", shipParcel, func(o *shopOrder, i shopItem) { o.Parcel = i.ID })
	ship.Pivot = true
	orders, err := saga.Register(e, saga.Definition[shopOrder]{Name: "orders", Version: 1, Steps: []saga.Step[shopOrder]{
		saga.Parallel[shopOrder]{Name: "both", Steps: []saga.Step[shopOrder]{
			ask("reserve", reserveGoods, nil), ask("charge", chargeCard, func(o *shopOrder, i shopItem) { o.Payment = i.ID }),
		}},
		saga.Local[shopOrder, Tx]{Name: "book", Do: book(1), Undo: book(-1)},
		ship,
		ask("mail", sendMail, func(o *shopOrder, _ shopItem) { o.Informed = true }),
	}})
	return box, e, orders, err
}

// delayed delays commands and replies of orders whose mode says so.
func delayed(_ context.Context, m *postrider.Message) error {
	payload := string(m.Payload)
	if m.Type == chargeCard.Type() && strings.Contains(payload, string(overtaken)) ||
		m.Type == "postrider.saga.reply" && m.Headers["postrider-saga-step"] == "both/charge" && strings.Contains(payload, `"`+string(lateReply)+`"`) {
		m.DeliverAfter = 2 * sagaTimeout
	}
	return nil
}

// record records what was done or undone for an order, without a unique constraint. That of a card also changes the total of an
// account, whose row its transactions, which have one message each, wait for.
func record(ctx context.Context, s session, id, step string, delta int) error {
	if step == "charge" {
		h := fnv.New32a()
		_, _ = h.Write([]byte(id))
		if err := s.exec(ctx, "update totals set total = total + ? where id = ?", delta, h.Sum32()%accounts); err != nil {
			return err
		}
	}
	return s.exec(ctx, "insert into saga_effects (id, step, delta) values (?, ?, ?)", id, step, delta)
}

// newShopParticipant returns a participant that does some of the steps.
func newShopParticipant[Tx any](s sagaStores[Tx], session func(Tx) session, r role) (*saga.Participant[Tx], error) {
	name := strings.TrimPrefix(string(r), "saga ")
	box, err := outbox.New[Tx](s, outbox.Config{Source: name, Hooks: []outbox.Hooks{{BeforePublish: delayed}}})
	if err != nil {
		return nil, err
	}
	p, err := saga.NewParticipant[Tx](s, box, saga.ParticipantConfig{Name: name})
	if err != nil {
		return nil, err
	}
	do := func(step string) func(context.Context, Tx, postrider.Typed[shopItem]) (shopItem, error) {
		return func(ctx context.Context, tx Tx, m postrider.Typed[shopItem]) (shopItem, error) {
			if err := record(ctx, session(tx), m.Data.ID, step, 1); err != nil {
				return shopItem{}, err
			}
			switch { // what is recorded above must be rolled back
			case step == "charge" && m.Data.Mode == declined, step == "ship" && m.Data.Mode == noParcel:
				return shopItem{}, saga.Refuse(string(m.Data.Mode), nil)
			case step == "charge" && m.Data.Mode == slowCard && time.Since(m.Time) < 2*sagaTimeout:
				return shopItem{}, postrider.Snooze(time.Second)
			}
			return m.Data, nil
		}
	}
	undo := func(step string) func(context.Context, Tx, shopItem, shopItem) error {
		return func(ctx context.Context, tx Tx, command, _ shopItem) error {
			return record(ctx, session(tx), command.ID, step, -1)
		}
	}
	switch r {
	case sagaStock:
		err = saga.Handle(p, reserveGoods, do("reserve"), undo("reserve"))
	case sagaCards:
		err = errors.Join(saga.Handle(p, chargeCard, do("charge"), undo("charge")), saga.Handle(p, sendMail, do("mail"), nil))
	case sagaParcels:
		err = saga.Handle(p, shipParcel, do("ship"), nil)
	}
	return p, err
}

// runSaga runs a process of the shop.
func (c child) runSaga(ctx context.Context) error {
	if strings.HasPrefix(c.URL, "postgres:") {
		return runSagaRole(ctx, c, openSagaPostgres, onPostgres)
	}
	return runSagaRole(ctx, c, openSagaMySQL, onMySQL)
}

func openSagaPostgres(ctx context.Context, url string) (sagaStores[pgx.Tx], error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = 10
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return postgres.New(pool, postgres.Config{IdleTimeout: childLeases})
}

func openSagaMySQL(_ context.Context, url string) (sagaStores[*sql.Tx], error) {
	cfg, err := mysql.ParseDSN(url)
	if err != nil {
		return nil, err
	}
	cfg.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(10)
	db.SetMaxIdleConns(10)
	return mysqlstore.New(db, mysqlstore.Config{IdleTimeout: childLeases})
}

func runSagaRole[Tx any](ctx context.Context, c child, open func(ctx context.Context, url string) (sagaStores[Tx], error), session func(Tx) session) error {
	p := sagaProcess[Tx]{child: c, logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	var err error
	if p.shop, err = open(ctx, c.URL); err != nil {
		return err
	}
	if p.cards, err = open(ctx, c.Cards); err != nil {
		return err
	}
	var runs []func(context.Context) error
	switch c.Role {
	case sagaEngine:
		runs, err = p.engine(ctx, session)
	case sagaWires:
		runs, err = p.wires(ctx)
	case sagaCards:
		runs, err = p.remote(ctx, session)
	default:
		runs, err = p.participant(session)
	}
	if err != nil {
		return err
	}
	fmt.Println(childWorks)
	ended := make(chan error)
	for _, run := range runs {
		go func() { ended <- run(ctx) }()
	}
	return <-ended
}

// sagaProcess is a process of the shop.
type sagaProcess[Tx any] struct {
	child
	shop, cards sagaStores[Tx]
	logger      *slog.Logger
}

func (p sagaProcess[Tx]) relay(s store.Relay, name string, topics ...string) (*relay.Relay, error) {
	return relay.New(s, relay.Config{Name: name, Topics: topics, LeaseTTL: childLeases, BackoffMax: 500 * time.Millisecond, Logger: p.logger})
}

func (p sagaProcess[Tx]) engine(ctx context.Context, session func(Tx) session) ([]func(context.Context) error, error) {
	_, e, _, err := newShop(p.shop, session, p.logger)
	if err != nil {
		return nil, err
	}
	r, err := p.relay(p.shop, "engine", e.Topic())
	if err != nil {
		return nil, err
	}
	c, err := p.consumer(ctx, p.shop, "replies", "ANSWERS")
	if err != nil {
		return nil, err
	}
	return []func(context.Context) error{r.Run, c.Run}, errors.Join(e.Relay(r), e.Consume(c))
}

func (p sagaProcess[Tx]) consumer(ctx context.Context, s sagaStores[Tx], name, stream string) (*inbox.Consumer[Tx], error) {
	source, err := natsbroker.OpenSubscriber(ctx, p.Broker, natsbroker.SubscriberConfig{
		Config: natsbroker.Config{Stream: stream, MaxAge: time.Hour, Logger: p.logger}, Durable: name, AckWait: childLeases,
	})
	if err != nil {
		return nil, err
	}
	in, err := inbox.New[Tx](s)
	if err != nil {
		return nil, err
	}
	return inbox.NewConsumer(in, source, inbox.ConsumerConfig{
		Name: name, LeaseTTL: childLeases, BackoffMax: 500 * time.Millisecond, Concurrency: 4, RetryConcurrency: 2, Logger: p.logger,
	})
}

// wires publishes commands for the cards, and their replies, to the broker.
func (p sagaProcess[Tx]) wires(ctx context.Context) (runs []func(context.Context) error, err error) {
	for _, wire := range []struct {
		store               sagaStores[Tx]
		name, topic, stream string
	}{
		{p.shop, "commands", "cards", "COMMANDS"}, {p.cards, "answers", "postrider.saga.shop", "ANSWERS"},
	} {
		publisher, err := natsbroker.Open(ctx, p.Broker, natsbroker.Config{Stream: wire.stream, MaxAge: time.Hour, Logger: p.logger})
		if err != nil {
			return nil, err
		}
		r, err := relay.New(wire.store, relay.Config{
			Name: wire.name, Topics: []string{wire.topic}, Publisher: publisher, LeaseTTL: childLeases, Logger: p.logger,
		})
		if err != nil {
			return nil, err
		}
		runs = append(runs, r.Run)
	}
	return runs, nil
}

// participant runs a participant that shares the engine's database.
func (p sagaProcess[Tx]) participant(session func(Tx) session) ([]func(context.Context) error, error) {
	participant, err := newShopParticipant(p.shop, session, p.Role)
	if err != nil {
		return nil, err
	}
	name := strings.TrimPrefix(string(p.Role), "saga ")
	r, err := p.relay(p.shop, name, name)
	if err != nil {
		return nil, err
	}
	return []func(context.Context) error{r.Run}, participant.Relay(r)
}

// remote runs the participant with a database of its own.
func (p sagaProcess[Tx]) remote(ctx context.Context, session func(Tx) session) ([]func(context.Context) error, error) {
	participant, err := newShopParticipant(p.cards, session, p.Role)
	if err != nil {
		return nil, err
	}
	c, err := p.consumer(ctx, p.cards, "cards", "COMMANDS")
	if err != nil {
		return nil, err
	}
	return []func(context.Context) error{c.Run}, participant.Consume(c)
}
