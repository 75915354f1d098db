package inbox_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	kafkabroker "github.com/postrider/postrider/broker/kafka"
	natsbroker "github.com/postrider/postrider/broker/nats"
	redisbroker "github.com/postrider/postrider/broker/redis"
	"github.com/postrider/postrider/inbox/inboxtest"
	"github.com/postrider/postrider/internal/servertest"
)

// TestFromGroup: the change that docs/inbox.md describes.
func TestFromGroup(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t testing.TB) (inGroup, asLog inboxtest.Source){
		"JetStream": bothNATS, "Kafka": bothKafka, "Redis": bothRedis,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inboxtest.FromGroup(t, inboxtest.Harness[pgx.Tx]{Open: openPostgres}, open)
		})
	}
}

func bothNATS(t testing.TB) (inGroup, asLog inboxtest.Source) {
	address, cfg := servertest.Get(t, servertest.NATS), natsbroker.Config{Stream: unique()}
	p, err := natsbroker.Open(context.Background(), address, cfg)
	must(t, err)
	closing(t, p)
	return inboxtest.Source{Publish: p.Publish, Topic: topic, Join: joinNATS(address, cfg, group, true)},
		inboxtest.Source{Topic: topic, Join: joinNATS(address, cfg, "", false)}
}

func bothKafka(t testing.TB) (inGroup, asLog inboxtest.Source) {
	address, prefix := servertest.Get(t, servertest.Kafka), unique()+"."
	p, err := kafkabroker.Open(context.Background(), address, kafkabroker.Config{Prefix: prefix, Create: true, Partitions: 3})
	must(t, err)
	closing(t, p)
	return inboxtest.Source{Publish: p.Publish, Topic: topic, Join: joinKafka(address, prefix, group, 3)},
		inboxtest.Source{Topic: topic, Join: joinKafka(address, prefix, "", 3)}
}

func bothRedis(t testing.TB) (inGroup, asLog inboxtest.Source) {
	address, cfg := servertest.Get(t, servertest.Redis), redisbroker.Config{Prefix: unique() + ":"}
	p, err := redisbroker.Open(context.Background(), address, cfg)
	must(t, err)
	closing(t, p)
	return inboxtest.Source{Publish: p.Publish, Topic: topic, Join: joinRedis(address, cfg, group)},
		inboxtest.Source{Topic: topic, Join: joinRedis(address, cfg, "")}
}
