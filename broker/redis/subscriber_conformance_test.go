package redisbroker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/broker/brokertest"
	redisbroker "github.com/postrider/postrider/broker/redis"
)

func TestSubscriberConformance(t *testing.T) {
	t.Parallel()
	brokertest.RunSubscriber(t, brokertest.SubscriberHarness{New: func(t *testing.T) brokertest.SubscriberEnv {
		return subscriberEnv(t, startServer(t), redisbroker.SubscriberConfig{})
	}})
}

// TestSubscriberConformanceNarrow uses one partition and a small window, and deletes settled messages.
func TestSubscriberConformanceNarrow(t *testing.T) {
	t.Parallel()
	brokertest.RunSubscriber(t, brokertest.SubscriberHarness{New: func(t *testing.T) brokertest.SubscriberEnv {
		return subscriberEnv(t, startServer(t), redisbroker.SubscriberConfig{
			Config: redisbroker.Config{Partitions: 2}, MaxAckPending: 50,
		})
	}})
}

func subscriberEnv(t *testing.T, s *server, cfg redisbroker.SubscriberConfig) brokertest.SubscriberEnv {
	const topic = "orders.placed"
	client := s.client(t)
	p := open(t, s.url(), redisbroker.Config{PublishTimeout: 15 * time.Second, Partitions: cfg.Partitions})
	partitions := cfg.Partitions
	if partitions == 0 {
		partitions = redisbroker.DefaultPartitions
	}
	stream := func(partition int) string {
		return fmt.Sprintf("%s{%s/%d}", redisbroker.DefaultPrefix, topic, partition)
	}
	return brokertest.SubscriberEnv{
		Topic:     topic,
		Publisher: p,
		Member: func(t testing.TB, group string) brokertest.Member {
			faults := newProxy(t, s.address())
			c := cfg
			c.Group, c.Topics, c.PublishTimeout, c.ClaimAfter = group, []string{topic}, 10*time.Second, 2*time.Second
			return brokertest.Member{Subscriber: openSubscriber(t, faults.url(), c), Cut: faults.Sever, Restore: faults.Restore}
		},
		Poison: func(t testing.TB, m *postrider.Message) {
			fields := []string{"data", string(m.Payload)}
			for name, value := range (postrider.CloudEventsBinary{Prefix: "ce_", UTF8: true}).Headers(m) {
				if name == "ce_time" {
					value = "yesterday"
				}
				fields = append(fields, name, value)
			}
			if err := client.XAdd(t.Context(), &redis.XAddArgs{
				Stream: stream(postrider.PartitionOf(m.Key, "", partitions)), Values: fields,
			}).Err(); err != nil {
				t.Fatal(err)
			}
		},
		Recreate: func(t testing.TB) {
			for i := range partitions {
				if err := client.Del(t.Context(), stream(i)).Err(); err != nil {
					t.Fatal(err)
				}
			}
		},
		Stop:  s.stop,
		Start: s.start,
	}
}

func openSubscriber(t testing.TB, url string, cfg redisbroker.SubscriberConfig) *redisbroker.Subscriber {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := redisbroker.OpenSubscriber(ctx, url, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}
