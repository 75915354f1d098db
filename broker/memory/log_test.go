package memorybroker_test

import (
	"errors"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/broker/brokertest"
	memorybroker "github.com/postrider/postrider/broker/memory"
)

func TestLogConformance(t *testing.T) {
	t.Parallel()
	for name, partitions := range map[string]int{"one partition": 1, "four partitions": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			brokertest.RunLog(t, brokertest.LogHarness{
				NoCut: "there is no connection that could break", NoGrow: "the number of partitions is configured", NoLag: "it has no tools",
				New: func(t *testing.T) brokertest.LogEnv {
					const topic = "orders"
					b := open(t, memorybroker.Config{DedupeWindow: time.Hour})
					return brokertest.LogEnv{
						Topic: topic, Publisher: b,
						Member: func(t testing.TB) brokertest.Member {
							s, err := b.Subscriber(memorybroker.SubscriberConfig{Topics: []string{topic}, Partitions: partitions})
							if err != nil {
								t.Fatal(err)
							}
							return brokertest.Member{Subscriber: s}
						},
						Poison:   func(_ testing.TB, m *postrider.Message) { b.Poison(m) },
						LoseTail: func(_ testing.TB, n int) { b.LoseTail(topic, n) },
						Expire:   func(_ testing.TB, n int) { b.Expire(topic, n) },
						Recreate: func(testing.TB) { b.Recreate(topic) },
						Stop:     func(testing.TB) { b.SetUnavailable(errors.New("stopped")) },
						Start:    func(testing.TB) { b.SetUnavailable(nil) },
					}
				},
			})
		})
	}
}
