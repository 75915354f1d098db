// Package inbox_test tests that consumers over real brokers and databases process every message exactly once.
package inbox_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "modernc.org/sqlite"

	"github.com/postrider/postrider"
	kafkabroker "github.com/postrider/postrider/broker/kafka"
	natsbroker "github.com/postrider/postrider/broker/nats"
	rabbitmqbroker "github.com/postrider/postrider/broker/rabbitmq"
	redisbroker "github.com/postrider/postrider/broker/redis"
	"github.com/postrider/postrider/inbox/inboxtest"
	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/store/postgres"
	"github.com/postrider/postrider/store/sqlite"
)

// TestBrokers tests each broker with one of the databases.
func TestBrokers(t *testing.T) {
	t.Parallel()
	onPostgres := map[string]func(t testing.TB) inboxtest.Source{
		"NATSOrdered": openNATS(group, true, false), "NATSLog": openNATS("", false, false), "NATSPartitions": openNATS("", false, true), "RabbitMQ": openRabbitMQ,
		"Kafka": openKafka(group), "KafkaLog": openKafka(""), "RedisLog": openRedis(""),
	}
	onSQLite := map[string]func(t testing.TB) inboxtest.Source{"NATS": openNATS(group, false, false), "Redis": openRedis(group)}
	for name, open := range onPostgres {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inboxtest.Broker(t, inboxtest.Harness[pgx.Tx]{Open: openPostgres}, open)
		})
	}
	for name, open := range onSQLite {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inboxtest.Broker(t, inboxtest.Harness[*sql.Tx]{Open: openSQLite}, open)
		})
	}
}

// unique returns a name that no other test has, of letters and digits.
func unique() string { return "i" + strings.ReplaceAll(postrider.NewID(), "-", "") }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func openPostgres(t testing.TB) inboxtest.Store[pgx.Tx] {
	ctx, name := context.Background(), unique()
	cfg, err := pgxpool.ParseConfig(servertest.Get(t, servertest.Postgres))
	must(t, err)
	cfg.MaxConns = 20
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	must(t, err)
	t.Cleanup(pool.Close)
	_, err = pool.Exec(ctx, "create schema "+name)
	must(t, err)
	t.Cleanup(func() {
		if _, err := pool.Exec(ctx, "drop schema "+name+" cascade"); err != nil {
			t.Errorf("drop the test's schema: %v", err)
		}
	})
	config := postgres.Config{Schema: name, Partitions: 4}
	_, err = postgres.Migrate(ctx, pool, config, postgres.Latest)
	must(t, err)
	store, err := postgres.New(pool, config)
	must(t, err)
	return store
}

func openSQLite(t testing.TB) inboxtest.Store[*sql.Tx] {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "inbox.db")+"?_pragma=busy_timeout(5000)")
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	_, err = sqlite.Migrate(context.Background(), db, sqlite.Config{Partitions: 4}, sqlite.Latest)
	must(t, err)
	store, err := sqlite.New(db, sqlite.Config{})
	must(t, err)
	return store
}

const group, topic = "view", "orders"

// closing closes c when the test ends.
func closing(t testing.TB, c interface{ Close() error }) {
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}

// openNATS reads a stream by a durable consumer, or as a log if it has no name.
func openNATS(durable string, ordered, partitioned bool) func(t testing.TB) inboxtest.Source {
	return func(t testing.TB) inboxtest.Source {
		address, cfg := servertest.Get(t, servertest.NATS), natsbroker.Config{Stream: unique(), Partitioned: partitioned}
		p, err := natsbroker.Open(context.Background(), address, cfg)
		must(t, err)
		closing(t, p)
		return inboxtest.Source{Publish: p.Publish, Topic: topic, Join: joinNATS(address, cfg, durable, ordered)}
	}
}

func joinNATS(address string, cfg natsbroker.Config, durable string, ordered bool) func(t testing.TB) postrider.Subscriber {
	return func(t testing.TB) postrider.Subscriber {
		read := natsbroker.SubscriberConfig{Config: cfg, Durable: durable, Ordered: ordered}
		if durable != "" {
			read.AckWait = time.Second
		}
		s, err := natsbroker.OpenSubscriber(context.Background(), address, read)
		must(t, err)
		closing(t, s)
		return s
	}
}

// openRedis reads streams in a group, or as a log without one.
func openRedis(group string) func(t testing.TB) inboxtest.Source {
	return func(t testing.TB) inboxtest.Source {
		address, cfg := servertest.Get(t, servertest.Redis), redisbroker.Config{Prefix: unique() + ":"}
		p, err := redisbroker.Open(context.Background(), address, cfg)
		must(t, err)
		closing(t, p)
		return inboxtest.Source{Publish: p.Publish, Topic: topic, Join: joinRedis(address, cfg, group)}
	}
}

func joinRedis(address string, cfg redisbroker.Config, group string) func(t testing.TB) postrider.Subscriber {
	return func(t testing.TB) postrider.Subscriber {
		read := redisbroker.SubscriberConfig{Config: cfg, Group: group, Topics: []string{topic}}
		if group != "" {
			read.ClaimAfter = time.Second
		}
		s, err := redisbroker.OpenSubscriber(context.Background(), address, read)
		must(t, err)
		closing(t, s)
		return s
	}
}

func openRabbitMQ(t testing.TB) inboxtest.Source {
	address, exchange := servertest.Get(t, servertest.RabbitMQ), unique()
	p, err := rabbitmqbroker.Open(context.Background(), address, rabbitmqbroker.Config{Exchange: exchange})
	must(t, err)
	closing(t, p)
	return inboxtest.Source{Publish: p.Publish, Topic: topic, Join: func(t testing.TB) postrider.Subscriber {
		s, err := rabbitmqbroker.OpenSubscriber(context.Background(), address, rabbitmqbroker.SubscriberConfig{
			Exchange: exchange, Queue: exchange + "." + group, Topics: []string{topic}, Ordered: true,
		})
		must(t, err)
		return s
	}}
}

// openKafka reads topics in a group, or as a log without one.
func openKafka(group string) func(t testing.TB) inboxtest.Source {
	return func(t testing.TB) inboxtest.Source {
		address, prefix := servertest.Get(t, servertest.Kafka), unique()+"."
		p, err := kafkabroker.Open(context.Background(), address, kafkabroker.Config{Prefix: prefix, Create: true, Partitions: 3})
		must(t, err)
		closing(t, p)
		return inboxtest.Source{Publish: p.Publish, Topic: topic, Join: joinKafka(address, prefix, group, 3)}
	}
}

// joinKafka opens subscribers of topics that it creates: of a group, whose name gets the prefix, or of a log.
func joinKafka(address, prefix, group string, partitions int) func(t testing.TB) postrider.Subscriber {
	return func(t testing.TB) postrider.Subscriber {
		read := kafkabroker.SubscriberConfig{Topics: []string{topic}, Prefix: prefix, Create: true, Partitions: partitions}
		if group != "" {
			read.Group, read.SessionTimeout, read.RevokeWait, read.CommitEvery = prefix+group, 3*time.Second, 300*time.Millisecond, 100*time.Millisecond
		}
		s, err := kafkabroker.OpenSubscriber(context.Background(), address, read)
		must(t, err)
		closing(t, s)
		return s
	}
}
