package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider"
	natsbroker "github.com/postrider/postrider/broker/nats"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/postgres"
)

// The environment of a test binary that is started as a consumer: how it consumes, and from where.
const (
	consumerVariable = "POSTRIDER_CRASH_CONSUMER"
	consumerDSN      = "POSTRIDER_CRASH_DSN"
	consumerBroker   = "POSTRIDER_CRASH_BROKER"
)

// The ways to consume.
const (
	byTx         = "tx"         // a relay with transactions reads the outbox
	byID         = "id"         // a consumer of the stream, one message per transaction
	byIDBatch    = "batch"      // the same, up to 20
	byLog        = "log"        // a consumer of the stream as a log, in order
	byPartitions = "partitions" // the same in a partitioned stream
	byKafkaLog   = "kafka-log"  // the same on Kafka
	byRedisLog   = "redis-log"  // the same on Redis
	byOtherBase  = "in-process" // a consumer fed by a relay of the outbox
)

// consumerReady is what a consumer prints when it is ready.
const consumerReady = "consumer works"

// runConsumer runs this process as a consumer and exits, if it was started as one.
func runConsumer() {
	way := os.Getenv(consumerVariable)
	if way == "" {
		return
	}
	if err := consumeUntilTold(way); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// transfer is the payload of the load's messages.
type transfer struct {
	Account int   `json:"account"`
	Amount  int64 `json:"amount"`
}

// enter is the handler: it inserts a row, without a unique constraint, and updates the account's balance.
func enter(ctx context.Context, tx pgx.Tx, m *postrider.Message) error {
	var t transfer
	if err := json.Unmarshal(m.Payload, &t); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `insert into entered (id, account, amount) values ($1, $2, $3)`, m.ID, t.Account, t.Amount); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `update balances set balance = balance + $2 where account = $1`, t.Account, t.Amount); err != nil {
		return err
	}
	if rand.IntN(50) == 0 {
		return errors.New("bad luck, after the effect")
	}
	return nil
}

// paused exceeds the lease TTL and the broker's wait for a settlement.
const (
	consumerLease = 2 * time.Second
	consumerAck   = time.Second
	paused        = 3500 * time.Millisecond
)

func consumeUntilTold(way string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	pool, err := newPool(ctx, os.Getenv(consumerDSN), 12)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := postgres.New(pool, postgres.Config{})
	if err != nil {
		return err
	}
	run, ready, err := consumerOf(ctx, way, store)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ready() != nil {
		select {
		case err := <-done:
			return err
		case <-tick.C:
		}
	}
	fmt.Println(consumerReady)
	return <-done
}

// newPool opens a pool of at most size connections.
func newPool(ctx context.Context, dsn string, size int32) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = size
	return pgxpool.NewWithConfig(ctx, cfg)
}

// consumerOf returns a consumer of the given way.
func consumerOf(ctx context.Context, way string, store *postgres.Store) (run func(context.Context) error, ready func() error, err error) {
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if way == byTx {
		r, err := relay.New(store, relay.Config{
			Name: "ledger", LeaseTTL: consumerLease, MaxAttempts: 1000, BackoffMax: 200 * time.Millisecond, TxBatch: 20, Logger: logger,
		})
		if err != nil {
			return nil, nil, err
		}
		return r.Run, r.Ready, relay.HandleTxFunc(r, "transfer", enter)
	}
	cfg := inbox.ConsumerConfig{
		Name: "ledger", LeaseTTL: consumerLease, MaxAttempts: 1000, BackoffMax: 200 * time.Millisecond, Concurrency: 4, Logger: logger,
	}
	var source postrider.Subscriber
	url := os.Getenv(consumerBroker)
	if way != byID && way != byOtherBase {
		cfg.Batch = 20
	}
	switch log, ok := logBrokers[way]; {
	case ok:
		source, err = log.read(ctx, url)
	case way == byOtherBase:
		source, err = inbox.FromRelay(store, relay.Config{Name: "to-ledger", LeaseTTL: consumerLease, Logger: logger})
	default:
		source, err = natsbroker.OpenSubscriber(ctx, url, natsbroker.SubscriberConfig{
			Config: natsbroker.Config{Stream: "ACCOUNTS"}, Durable: "ledger", AckWait: consumerAck,
		})
	}
	if err != nil {
		return nil, nil, err
	}
	in, err := inbox.New(store)
	if err != nil {
		return nil, nil, err
	}
	c, err := inbox.NewConsumer(in, source, cfg)
	if err != nil {
		return nil, nil, err
	}
	return c.Run, c.Ready, c.HandleFunc("transfer", enter)
}
