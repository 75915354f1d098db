package kafkabroker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider"
	kafkabroker "github.com/postrider/postrider/broker/kafka"
)

// open opens a publisher with short timeouts that is closed at the end of the test.
func open(t testing.TB, address string, cfg kafkabroker.Config) *kafkabroker.Publisher {
	t.Helper()
	if cfg.PublishTimeout == 0 {
		cfg.PublishTimeout = 15 * time.Second
	}
	p, err := kafkabroker.Open(by(t), "kafka://"+address, cfg)
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

func message(topic, key string, n int) *postrider.Message {
	return &postrider.Message{
		ID: fmt.Sprintf("%s|%s|%d", topic, key, n), Type: "test.happened", Source: "/test", Topic: topic, Key: key,
		AggregateVersion: int64(n), ContentType: "application/json", Payload: fmt.Appendf(nil, `{"n":%d}`, n),
	}
}

// mustPublish publishes messages that must all be accepted.
func mustPublish(t testing.TB, p postrider.Publisher, msgs ...*postrider.Message) {
	t.Helper()
	for i, err := range p.Publish(t.Context(), msgs) {
		if err != nil {
			t.Fatalf("message %s: %v", msgs[i].ID, err)
		}
	}
}

// createTopic creates a topic with settings. When it returns, the broker's metadata shows this topic, and no longer a deleted one of the
// same name: what is opened then finds it.
func createTopic(t testing.TB, address, name string, partitions int, settings map[string]string) *kadm.Client {
	t.Helper()
	configs := make(map[string]*string)
	for k, v := range settings {
		configs[k] = &v
	}
	admin := kadm.NewClient(plainClient(t, address))
	created, err := admin.CreateTopic(by(t), int32(partitions), 1, configs, name)
	if err != nil {
		t.Fatal(err)
	}
	until(t, func() bool {
		listed, err := admin.ListTopics(by(t), name)
		return err == nil && listed[name].ID == created.ID && len(listed[name].Partitions) == partitions
	})
	return admin
}

// TestPartitionsAreJavas compares with the hashes in the tests of Kafka's own client.
func TestPartitionsAreJavas(t *testing.T) {
	t.Parallel()
	hashes := map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536, "a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971, "abc": 479470107,
	}
	address, prefix := sharedServer(t), newPrefix()
	p := open(t, address, kafkabroker.Config{Prefix: prefix, Create: true, Partitions: 7})
	for key := range hashes {
		mustPublish(t, p, message("java", key, 1))
	}
	for _, r := range records(t, address, prefix+"java") {
		if want := (hashes[string(r.Key)] & 0x7fffffff) % 7; r.Partition != want {
			t.Errorf("key %s is in partition %d, want %d", r.Key, r.Partition, want)
		}
	}
}

// TestHotKeySharesBatches checks that messages of one key do not each wait for the previous one.
func TestHotKeySharesBatches(t *testing.T) {
	t.Parallel()
	link, prefix := newProxy(t, sharedServer(t)), newPrefix()
	p := open(t, link.Address(), kafkabroker.Config{Connection: through(link), Prefix: prefix, Create: true})
	mustPublish(t, p, message("hot", "a", 0))
	before := link.count(produceKey)
	var msgs []*postrider.Message
	for n := range 2_000 {
		msgs = append(msgs, message("hot", "a", n+1))
	}
	mustPublish(t, p, msgs...)
	if n := link.count(produceKey) - before; n > 200 {
		t.Errorf("%d messages of one key took %d requests", len(msgs), n)
	}
	for i, m := range arrived(t, sharedServer(t), prefix+"hot") {
		if m.AggregateVersion != int64(i) {
			t.Fatalf("message number %d stands at place %d", m.AggregateVersion, i)
		}
	}
}

// randomMessages are up to 300 messages, numbered from the one after first.
func randomMessages(random *rand.Rand, first int, headers bool) []*postrider.Message {
	msgs := make([]*postrider.Message, 1+random.IntN(300))
	for i := range msgs {
		m := message("memory", strconv.Itoa(random.IntN(40)), first|i+1)
		if headers {
			m.Headers = map[string]string{"first": m.ID}
		}
		for h := range len(m.Headers) * random.IntN(4) {
			m.Headers["header"+strconv.Itoa(h)] = strings.Repeat(string(rune('a'+random.IntN(26))), 1+random.IntN(50))
		}
		msgs[i] = m
	}
	return msgs
}

// TestCallsLeaveMemory makes calls of many sizes, concurrently and one after another. Some fail, are canceled, or
// succeed after a rejection, a lost answer or a broken connection. Reused memory of one call must not show in the
// messages of a later one.
func TestCallsLeaveMemory(t *testing.T) {
	t.Parallel()
	const writers, calls = 8, 28
	address, prefix := sharedServer(t), newPrefix()
	link := newProxy(t, address)
	p := open(t, link.Address(), kafkabroker.Config{Connection: through(link), Prefix: prefix, Create: true})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	accepted := make([]map[string]*postrider.Message, writers)
	var all sync.WaitGroup
	for w := range writers {
		accepted[w] = make(map[string]*postrider.Message)
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(w)))
			for c := range calls {
				msgs := randomMessages(random, w<<32|c<<16, c%2 == 0)
				ctx, cancel := context.WithCancel(t.Context())
				one := msgs[random.IntN(len(msgs))]
				switch c % 7 {
				case 2:
					link.refuse.Mark(one.ID)
				case 3:
					link.loseAck.Mark(one.ID)
				case 4:
					one.Payload = make([]byte, 2<<20) // too large
				case 5:
					link.Drop()
				case 6:
					time.AfterFunc(time.Duration(random.IntN(2_000))*time.Microsecond, cancel)
				}
				errs := p.Publish(ctx, msgs)
				cancel()
				for i, m := range msgs {
					if errs == nil || errs[i] == nil {
						accepted[w][m.ID] = m
					}
				}
			}
		})
	}
	all.Wait()
	for _, m := range arrived(t, address, prefix+"memory") {
		w := m.AggregateVersion >> 32
		if want := accepted[w][m.ID]; want != nil && !reflect.DeepEqual(m, want) {
			t.Fatalf("published:\n%+v\narrived:\n%+v", want, m)
		}
		delete(accepted[w], m.ID)
	}
	for _, missing := range accepted {
		for id := range missing {
			t.Errorf("%s was accepted and has not arrived", id)
		}
	}
}

// tracing wraps the context of every record, like tracing hooks.
type tracing struct{ records atomic.Int64 }

type spanKey struct{}

// OnProduceRecordBuffered implements kgo.HookProduceRecordBuffered.
func (h *tracing) OnProduceRecordBuffered(r *kgo.Record) {
	r.Context = context.WithValue(r.Context, spanKey{}, h.records.Add(1))
}

func TestHooksMayWrapContexts(t *testing.T) {
	t.Parallel()
	address, prefix, hook := sharedServer(t), newPrefix(), &tracing{}
	p := open(t, address, kafkabroker.Config{
		Connection: kafkabroker.Connection{Options: []kgo.Opt{kgo.WithHooks(hook)}}, Prefix: prefix, Create: true,
	})
	var msgs []*postrider.Message
	for n := range 100 {
		msgs = append(msgs, message("traced", "a", n))
	}
	mustPublish(t, p, msgs...)
	if got := len(arrived(t, address, prefix+"traced")); got != len(msgs) || hook.records.Load() < int64(len(msgs)) {
		t.Errorf("%d messages arrived and %d were traced, want %d", got, hook.records.Load(), len(msgs))
	}
}

// TestSmallBatchesKeepOrder makes small batches fail in every way while others are in flight: the first copies of a
// key's messages must still be in order.
func TestSmallBatchesKeepOrder(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	address, topic := sharedServer(t), newPrefix()+"small"
	createTopic(t, address, topic, 2, map[string]string{"max.message.bytes": "2500"})
	link := newProxy(t, address)
	p := open(t, link.Address(), kafkabroker.Config{Connection: through(link), Topic: topic, Compress: "none", PublishTimeout: 2 * time.Second})
	var left []*postrider.Message
	for n := range 600 {
		left = append(left, message("small", "key"+strconv.Itoa(n%3), n/3+1))
	}
	for deadline := time.Now().Add(5 * time.Minute); len(left) > 0; {
		if time.Now().After(deadline) {
			t.Fatalf("%d messages are not accepted", len(left))
		}
		link.refuse.Mark(left[random.IntN(len(left))].ID, left[random.IntN(len(left))].ID)
		link.loseAck.Mark(left[random.IntN(len(left))].ID)
		var again []*postrider.Message
		for i, err := range p.Publish(t.Context(), left) {
			if err != nil {
				again = append(again, left[i])
			}
		}
		left = again
	}
	last := make(map[string]int64)
	for _, m := range arrived(t, address, topic) {
		if m.AggregateVersion > last[m.Key]+1 {
			t.Errorf("message %s is stored after number %d of its key", m.ID, last[m.Key])
		}
		last[m.Key] = max(last[m.Key], m.AggregateVersion)
	}
	for key, n := range last {
		if n != 200 {
			t.Errorf("the last message of %s is number %d, want 200", key, n)
		}
	}
}
