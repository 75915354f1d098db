package redisbroker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/broker/brokertest"
	redisbroker "github.com/postrider/postrider/broker/redis"
)

func TestLogConformance(t *testing.T) {
	t.Parallel()
	for name, partitions := range map[string]int{"one partition": 1, "four partitions": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			brokertest.RunLog(t, brokertest.LogHarness{
				NoLoseTail: "a single server does not lose what it has stored; a restored copy is tested with consumers",
				NoCut:      "a reader has no connection: each read checks that the stream is the same",
				NoGrow:     "the number of partitions is configured", NoLag: "Redis does not count from an ID",
				New: func(t *testing.T) brokertest.LogEnv { return logEnv(t, startServer(t), partitions) },
			})
		})
	}
}

func logEnv(t *testing.T, s *server, partitions int) brokertest.LogEnv {
	cfg := redisbroker.Config{Partitions: partitions}
	env := subscriberEnv(t, s, redisbroker.SubscriberConfig{Config: cfg})
	return brokertest.LogEnv{
		Topic: env.Topic, Publisher: env.Publisher, Poison: env.Poison, Recreate: env.Recreate, Stop: env.Stop, Start: env.Start,
		Member: func(t testing.TB) brokertest.Member {
			return brokertest.Member{Subscriber: openSubscriber(t, s.url(), redisbroker.SubscriberConfig{Config: cfg, Topics: []string{env.Topic}})}
		},
		Expire: func(t testing.TB, n int) {
			client := s.client(t)
			for i := range partitions {
				stream := fmt.Sprintf("%s{%s/%d}", redisbroker.DefaultPrefix, env.Topic, i)
				length, err := client.XLen(t.Context(), stream).Result()
				remove := min(n, max(int(length)-1, 0))
				if err == nil {
					err = client.XTrimMaxLen(t.Context(), stream, length-int64(remove)).Err()
				}
				if err != nil {
					t.Fatal(err)
				}
				n -= remove
			}
		},
	}
}

// oneStream is a log of one partition.
type oneStream struct {
	client *redis.Client
	log    *redisbroker.Subscriber
	name   string
}

func newStream(t *testing.T) oneStream {
	s := startServer(t)
	log := openSubscriber(t, s.url(), redisbroker.SubscriberConfig{Config: redisbroker.Config{Partitions: 1}, Topics: []string{"orders"}})
	return oneStream{s.client(t), log, redisbroker.DefaultPrefix + "{orders/0}"}
}

func (s oneStream) state(t *testing.T) postrider.LogPartition {
	t.Helper()
	parts, err := s.log.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return parts[0]
}

// add adds entries and returns the offset of the last one.
func (s oneStream) add(t *testing.T, n int) int64 {
	t.Helper()
	for range n {
		if err := s.client.XAdd(t.Context(), &redis.XAddArgs{Stream: s.name, Values: []string{"data", "x"}}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	return s.state(t).End
}

func (s oneStream) do(t *testing.T, args ...any) {
	t.Helper()
	if err := s.client.Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
}

// TestLogTrimmedBelowAReader: a reader ends when entries were removed that it had not read, and only then.
func TestLogTrimmedBelowAReader(t *testing.T) {
	t.Parallel()
	s := newStream(t)
	s.add(t, 10)
	r, err := s.log.ReadLog(t.Context(), s.state(t), 0)
	if err != nil {
		t.Fatal(err)
	}
	read := func(n int) (err error) {
		t.Helper()
		for n > 0 {
			got, err := r.Read(t.Context(), n, 1<<20)
			if err != nil {
				return err
			}
			n -= len(got)
		}
		return nil
	}
	if err := read(10); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := contextWithCancelAfter(t, 50*time.Millisecond) // it finds nothing more
	defer cancel()
	if _, err := r.Read(ctx, 10, 1<<20); err == nil {
		t.Fatal("there is an eleventh entry")
	}
	s.do(t, "XTRIM", s.name, "MAXLEN", 0)
	s.add(t, 3)
	if err := read(3); err != nil {
		t.Errorf("after entries were removed that it had read: %v", err)
	}
	s.add(t, 10)
	s.do(t, "XTRIM", s.name, "MAXLEN", 2)
	if err := read(1); err == nil || postrider.OutcomeOf(err).Kind != postrider.BrokerUnavailable {
		t.Errorf("after entries were removed that it had not read: %v, want that it ends", err)
	}
}

// TestLogState: a stream says which entries it may have lost.
func TestLogState(t *testing.T) {
	t.Parallel()
	s := newStream(t)
	if p := s.state(t); p.First != p.End+1 || p.Removed != 0 {
		t.Errorf("a new stream is %+v", p)
	}
	first := s.add(t, 1)
	if p := s.state(t); p.First != 1 || p.End != first {
		t.Errorf("a stream that has lost nothing is %+v", p)
	}
	last := s.add(t, 3)
	s.do(t, "XTRIM", s.name, "MAXLEN", 1)
	if p := s.state(t); p.First != last || p.End != last || p.Removed != 0 {
		t.Errorf("a stream of which only %d is left is %+v", last, p)
	}
	entries, err := s.client.XRange(t.Context(), s.name, "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	s.add(t, 1)
	s.do(t, "XDEL", s.name, entries[0].ID)
	if p := s.state(t); p.Removed != last {
		t.Errorf("a stream without entry %d is %+v", last, p)
	}
	s.do(t, "XADD", s.name, "9999999999999999-0", "data", "x")
	if _, err := s.log.Partitions(t.Context()); err == nil {
		t.Error("an ID that has no offset is accepted")
	}
}
