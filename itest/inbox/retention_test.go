package inbox_test

import (
	"context"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	kafkabroker "github.com/postrider/postrider/broker/kafka"
	natsbroker "github.com/postrider/postrider/broker/nats"
	redisbroker "github.com/postrider/postrider/broker/redis"
	"github.com/postrider/postrider/inbox/inboxtest"
	"github.com/postrider/postrider/internal/servertest"
)

// TestRetention: messages are removed while a consumer that reads a log is away.
func TestRetention(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t testing.TB) inboxtest.Expirable{
		"JetStream": expiringNATS(false), "JetStreamPartitions": expiringNATS(true), "Kafka": expiringKafka, "Redis": expiringRedis(""),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inboxtest.Retention(t, inboxtest.Harness[pgx.Tx]{Open: openPostgres}, open(t))
		})
	}
}

func expiringNATS(partitioned bool) func(t testing.TB) inboxtest.Expirable {
	return func(t testing.TB) inboxtest.Expirable {
		address, cfg := servertest.Get(t, servertest.NATS), natsbroker.Config{Stream: unique(), Partitioned: partitioned}
		p, err := natsbroker.Open(context.Background(), address, cfg)
		must(t, err)
		closing(t, p)
		return inboxtest.Expirable{
			Source: inboxtest.Source{Publish: p.Publish, Topic: topic, Join: joinNATS(address, cfg, "", false)},
			Expire: func(t testing.TB, n int) {
				s, err := jetStream(t, address).Stream(t.Context(), cfg.Stream)
				must(t, err)
				must(t, s.Purge(t.Context(), jetstream.WithPurgeKeep(uint64(n))))
			},
		}
	}
}

func jetStream(t testing.TB, address string) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect(address)
	must(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	must(t, err)
	return js
}

func expiringKafka(t testing.TB) inboxtest.Expirable {
	address, prefix := servertest.Get(t, servertest.Kafka), unique()+"."
	p, err := kafkabroker.Open(context.Background(), address, kafkabroker.Config{Prefix: prefix, Create: true, Partitions: 1})
	must(t, err)
	closing(t, p)
	return inboxtest.Expirable{
		Source: inboxtest.Source{Publish: p.Publish, Topic: topic, Join: joinKafka(address, prefix, "", 1)},
		Expire: func(t testing.TB, n int) {
			admin, name := kafkaAdmin(t, address), kafkabroker.TopicName(prefix, topic)
			ends, err := admin.ListEndOffsets(t.Context(), name)
			must(t, err)
			end, _ := ends.Lookup(name, 0)
			remove := make(kadm.Offsets)
			remove.AddOffset(name, 0, end.Offset-int64(n), -1)
			removed, err := admin.DeleteRecords(t.Context(), remove)
			must(t, err)
			must(t, removed.Error())
		},
	}
}

func kafkaAdmin(t testing.TB, address string) *kadm.Client {
	t.Helper()
	u, err := url.Parse(address)
	must(t, err)
	client, err := kgo.NewClient(kgo.SeedBrokers(u.Host))
	must(t, err)
	t.Cleanup(client.Close)
	return kadm.NewClient(client)
}

// TestGroupRetention: messages are removed while a group is away. Of the brokers, only Redis says so.
func TestGroupRetention(t *testing.T) {
	t.Parallel()
	inboxtest.GroupRetention(t, inboxtest.Harness[pgx.Tx]{Open: openPostgres}, expiringRedis(group)(t))
}

func expiringRedis(group string) func(t testing.TB) inboxtest.Expirable {
	return func(t testing.TB) inboxtest.Expirable {
		address, cfg := servertest.Get(t, servertest.Redis), redisbroker.Config{Prefix: unique() + ":", Partitions: 1}
		p, err := redisbroker.Open(context.Background(), address, cfg)
		must(t, err)
		closing(t, p)
		return inboxtest.Expirable{
			Source: inboxtest.Source{Publish: p.Publish, Topic: topic, Join: joinRedis(address, cfg, group)},
			Expire: func(t testing.TB, n int) {
				redisDo(t, address, "XTRIM", cfg.Prefix+"{"+topic+"/0}", "MAXLEN", n)
			},
		}
	}
}
