package inbox_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/postrider/postrider"
	kafkabroker "github.com/postrider/postrider/broker/kafka"
	redisbroker "github.com/postrider/postrider/broker/redis"
	"github.com/postrider/postrider/inbox/inboxtest"
	"github.com/postrider/postrider/internal/servertest"
)

// TestGrown: a topic gets partitions while Kafka's consumers run; on Redis, their number is configured.
func TestGrown(t *testing.T) {
	t.Parallel()
	t.Run("Kafka", func(t *testing.T) {
		t.Parallel()
		address, prefix := servertest.Get(t, servertest.Kafka), unique()+"."
		source := inboxtest.Source{
			Topic: topic, Join: joinKafka(address, prefix, "", 2),
			Publish: publishAgain(t, func(ctx context.Context) (*kafkabroker.Publisher, error) {
				return kafkabroker.Open(ctx, address, kafkabroker.Config{Prefix: prefix, Create: true, Partitions: 2})
			}),
		}
		inboxtest.Grown(t, inboxtest.Harness[pgx.Tx]{Open: openPostgres}, source, false, func(t testing.TB) inboxtest.Source {
			grown, err := kafkaAdmin(t, address).UpdatePartitions(t.Context(), 8, kafkabroker.TopicName(prefix, topic))
			must(t, err)
			must(t, grown.Error())
			return source
		})
	})
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		address, prefix := servertest.Get(t, servertest.Redis), unique()+":"
		of := func(partitions int) inboxtest.Source {
			cfg := redisbroker.Config{Prefix: prefix, Partitions: partitions}
			return inboxtest.Source{
				Topic: topic, Join: joinRedis(address, cfg, ""),
				Publish: publishAgain(t, func(ctx context.Context) (*redisbroker.Publisher, error) { return redisbroker.Open(ctx, address, cfg) }),
			}
		}
		inboxtest.Grown(t, inboxtest.Harness[pgx.Tx]{Open: openPostgres}, of(2), true, func(testing.TB) inboxtest.Source { return of(8) })
	})
}

// TestCompacted: compaction of a topic leaves gaps, before a consumer's position and after it.
func TestCompacted(t *testing.T) {
	t.Parallel()
	address, prefix := servertest.Get(t, servertest.Kafka), unique()+"."
	name, admin := kafkabroker.TopicName(prefix, topic), kafkaAdmin(t, address)
	settings := make(map[string]*string)
	for k, v := range map[string]string{"min.cleanable.dirty.ratio": "0", "segment.ms": "50"} {
		settings[k] = kadm.StringPtr(v)
	}
	createTopic(t, admin, name, settings)
	source := inboxtest.Source{
		Topic: topic, Join: joinKafka(address, prefix, "", 1),
		Publish: publishAgain(t, func(ctx context.Context) (*kafkabroker.Publisher, error) {
			return kafkabroker.Open(ctx, address, kafkabroker.Config{Prefix: prefix})
		}),
	}
	inboxtest.Compacted(t, inboxtest.Harness[pgx.Tx]{Open: openPostgres}, source, func(t testing.TB, id string) []string {
		change := []kadm.AlterConfig{{Name: "cleanup.policy", Value: kadm.StringPtr("compact")}}
		changed, err := admin.AlterTopicConfigs(t.Context(), change, name)
		must(t, err)
		must(t, changed[0].Err)
		for ; ; <-time.After(50 * time.Millisecond) {
			if left := readAll(t, source.Join(t).(postrider.Log)); len(left) < 4 && !slices.Contains(left, id) {
				return left
			}
		}
	})
}

// readAll returns the IDs of all messages in a log of one partition.
func readAll(t testing.TB, log postrider.Log) (ids []string) {
	t.Helper()
	parts, err := log.Partitions(t.Context())
	must(t, err)
	r, err := log.ReadLog(t.Context(), parts[0], parts[0].First-1)
	must(t, err)
	for at := parts[0].First - 1; at < parts[0].End; {
		got, err := r.Read(t.Context(), 100, 1<<20)
		must(t, err)
		for _, d := range got {
			if at = d.Position.Offset; d.Message != nil {
				ids = append(ids, d.Message.ID)
			}
		}
	}
	must(t, r.Close(t.Context()))
	return ids
}
