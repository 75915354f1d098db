package kafkabroker_test

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/broker/brokertest"
	kafkabroker "github.com/postrider/postrider/broker/kafka"
)

func TestLogConformance(t *testing.T) {
	t.Parallel()
	brokertest.RunLog(t, brokertest.LogHarness{
		NoLoseTail: "a single broker does not lose what it has stored; a restored copy is tested with consumers",
		New: func(t *testing.T) brokertest.LogEnv {
			if strings.Contains(t.Name(), "restart") {
				s := startServer(t, "")
				env := logEnv(t, s.address)
				env.Stop, env.Start = s.stop, s.start
				return env
			}
			return logEnv(t, sharedServer(t))
		},
	})
}

// logEnv is the environment of a log on one topic.
//
// size: the functions of the environment, one after another.
func logEnv(t *testing.T, address string) brokertest.LogEnv {
	env, prefix := inboundEnv(t, address)
	name := kafkabroker.TopicName(prefix, env.Topic)
	admin := kadm.NewClient(plainClient(t, address))
	var links []*proxy
	return brokertest.LogEnv{
		Topic: env.Topic, Publisher: env.Publisher, Poison: env.Poison, Recreate: env.Recreate,
		Stop: func(t testing.TB) {
			env.Stop(t)
			for _, link := range links {
				link.Sever()
			}
		},
		Start: func(t testing.TB) {
			for _, link := range links {
				link.Restore()
			}
			env.Start(t)
		},
		Member: func(t testing.TB) brokertest.Member {
			link := newProxy(t, address)
			links = append(links, link)
			s, err := kafkabroker.OpenSubscriber(t.Context(), "kafka://"+link.Address(), kafkabroker.SubscriberConfig{
				Connection: through(link), Topics: []string{env.Topic}, Prefix: prefix, Create: true, Partitions: 4,
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
			return brokertest.Member{Subscriber: s, Cut: link.Sever, Restore: link.Restore}
		},
		Expire: func(t testing.TB, n int) {
			ends, err := admin.ListEndOffsets(by(t), name)
			if err != nil {
				t.Fatal(err)
			}
			remove := make(kadm.Offsets)
			for number := range int32(4) {
				end, _ := ends.Lookup(name, number)
				m := min(n, max(int(end.Offset)-1, 0))
				remove.AddOffset(name, number, int64(m), -1)
				n -= m
			}
			removed, err := admin.DeleteRecords(by(t), remove)
			if err == nil {
				err = removed.Error()
			}
			if err != nil {
				t.Fatal(err)
			}
		},
		Grow: func(t testing.TB) {
			grown, err := admin.CreatePartitions(by(t), 3, name)
			if err == nil {
				err = grown.Error()
			}
			if err != nil {
				t.Fatal(err)
			}
		},
		Lag: func(t testing.TB, consumer string) (lag int64) {
			lags, err := admin.Lag(by(t), "postrider."+consumer)
			if err != nil {
				t.Fatal(err)
			}
			described := lags["postrider."+consumer]
			if err := described.Error(); err != nil {
				t.Fatal(err)
			}
			for _, l := range described.Lag.Sorted() {
				if l.Lag < 0 {
					t.Fatalf("lag of %+v: %v", l, l.Err)
				}
				if l.Commit.At >= 0 {
					lag += l.Lag
				}
			}
			return lag
		},
	}
}

// TestLogOfTransactions: only committed records are read, in order, and a position passes the markers of transactions: their removal is
// no loss, and an idle consumer has no lag.
func TestLogOfTransactions(t *testing.T) {
	t.Parallel()
	address, prefix := sharedServer(t), newPrefix()
	name := kafkabroker.TopicName(prefix, "orders")
	createTopic(t, address, name, 1, nil)
	client := plainClient(t, address, kgo.TransactionalID(prefix), kgo.DefaultProduceTopic(name))
	produceTogether(t, client, kgo.TryCommit, "m1", "m2")
	produceTogether(t, client, kgo.TryAbort, "m3", "m4")
	produceTogether(t, client, kgo.TryCommit, "m5", "m6")
	produceTogether(t, client, kgo.TryAbort, "m7")
	want := []string{"m1", "m2", "m5", "m6"}

	log, err := kafkabroker.OpenSubscriber(by(t), "kafka://"+address, kafkabroker.SubscriberConfig{Topics: []string{"orders"}, Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	parts, err := log.Partitions(by(t))
	if err != nil {
		t.Fatal(err)
	}
	r, err := log.ReadLog(by(t), parts[0], -1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close(context.Background()) })
	var got []string
	for at := int64(-1); at < parts[0].End; {
		deliveries, err := r.Read(by(t), 100, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range deliveries {
			at = d.Position.Offset
			if d.Message != nil {
				got = append(got, d.Message.ID)
			} else if d.Err != nil {
				t.Errorf("at %d: %v", at, d.Err)
			}
			if state, err := log.VerifyPosition(by(t), d.Position); err != nil || state != postrider.PositionKept {
				t.Errorf("%+v is %v, %v; want kept", d.Position, state, err)
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
}

// produceTogether produces messages in a transaction.
func produceTogether(t testing.TB, client *kgo.Client, end kgo.TransactionEndTry, ids ...string) {
	t.Helper()
	err := client.BeginTransaction()
	for _, id := range ids {
		r := &kgo.Record{Key: []byte("k"), Value: []byte("{}"), Headers: []kgo.RecordHeader{
			{Key: "ce_id", Value: []byte(id)}, {Key: "ce_type", Value: []byte("t")}, {Key: "ce_source", Value: []byte("test")},
			{Key: "ce_specversion", Value: []byte("1.0")},
		}}
		err = cmp.Or(err, client.ProduceSync(by(t), r).FirstErr())
	}
	if err = cmp.Or(err, client.EndTransaction(by(t), end)); err != nil {
		t.Fatal(err)
	}
}
