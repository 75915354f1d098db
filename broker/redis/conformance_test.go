package redisbroker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/broker/brokertest"
	redisbroker "github.com/postrider/postrider/broker/redis"
)

// publisherFeatures: Redis does not detect duplicates. It rejects whole transactions, never a single message, and no
// message is lost on an open connection.
var publisherFeatures = brokertest.Features{NoDedupe: true, NoRefuse: true, NoLoseMessages: true}

func TestConformance(t *testing.T) {
	t.Parallel()
	brokertest.Run(t, publisherFeatures, func(t *testing.T) brokertest.Harness {
		s := startServer(t)
		h := harness(t, s.address(), s.client(t), redisbroker.Config{})
		h.Stop, h.Start = s.stop, s.start
		return h
	})
}

// TestConformanceExternal runs on an existing server that the test cannot restart.
func TestConformanceExternal(t *testing.T) {
	t.Parallel()
	options, err := redis.ParseURL(runningServer(t))
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	features := publisherFeatures
	features.NoRestart = true
	brokertest.Run(t, features, func(t *testing.T) brokertest.Harness {
		prefix := fmt.Sprintf("test-%s-%d:", strings.ReplaceAll(t.Name(), " ", "-"), time.Now().UnixNano())
		t.Cleanup(func() { deleteKeys(t, client, prefix) })
		return harness(t, options.Addr, client, redisbroker.Config{Prefix: prefix, Partitions: 3, MaxLen: 1_000_000})
	})
}

func harness(t *testing.T, address string, client *redis.Client, cfg redisbroker.Config) brokertest.Harness {
	faults := newProxy(t, address)
	cfg.PublishTimeout, cfg.MaxMessageBytes = 15*time.Second, 64<<10
	p := open(t, faults.url(), cfg)
	return brokertest.Harness{
		Publisher: p,
		Close:     p.Close,
		Arrived: func(t testing.TB, topic string) []*postrider.Message {
			return arrived(t, client, cfg, topic)
		},
		LoseAcks: faults.loseAck.Mark,
		Drop:     faults.Drop,
		Pause:    faults.Pause,
		Resume:   faults.Resume,
	}
}

func open(t testing.TB, url string, cfg redisbroker.Config) *redisbroker.Publisher {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p, err := redisbroker.Open(ctx, url, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return p
}

// arrived reads all partitions of a topic, one after another.
func arrived(t testing.TB, client redis.UniversalClient, cfg redisbroker.Config, topic string) []*postrider.Message {
	t.Helper()
	prefix, partitions := cfg.Prefix, cfg.Partitions
	if prefix == "" {
		prefix = redisbroker.DefaultPrefix
	}
	if partitions == 0 {
		partitions = redisbroker.DefaultPartitions
	}
	var msgs []*postrider.Message
	for partition := range partitions {
		entries, err := client.XRange(t.Context(), fmt.Sprintf("%s{%s/%d}", prefix, topic, partition), "-", "+").Result()
		if err != nil {
			t.Fatalf("read topic %s: %v", topic, err)
		}
		for _, e := range entries {
			m, err := postrider.CloudEventsBinary{Prefix: "ce_", UTF8: true}.Decode(func(yield func(string, string) bool) {
				for name, value := range e.Values {
					if name != "data" && !yield(name, value.(string)) {
						return
					}
				}
			}, []byte(e.Values["data"].(string)))
			if err != nil {
				t.Fatalf("entry %s: %v", e.ID, err)
			}
			msgs = append(msgs, m)
		}
	}
	return msgs
}

func deleteKeys(t testing.TB, client *redis.Client, prefix string) {
	t.Helper()
	keys, err := client.Keys(context.WithoutCancel(t.Context()), prefix+"*").Result()
	if err != nil {
		t.Errorf("list keys: %v", err)
	}
	for part := range slices.Chunk(keys, 100) {
		if err := client.Del(context.WithoutCancel(t.Context()), part...).Err(); err != nil {
			t.Errorf("delete keys: %v", err)
		}
	}
}
