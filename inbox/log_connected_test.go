package inbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/store/memory"
)

// TestConnectedToALog: a consumer of a log says that it is not connected while the broker is away, also if it began then, and that it is
// when the broker is back, although nothing new is there to be read.
func TestConnectedToALog(t *testing.T) {
	t.Parallel()
	for name, awayFirst := range map[string]bool{"while it runs": false, "from the beginning": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, gone := newBroker(t), errors.New("the broker is away")
				if awayFirst {
					b.SetUnavailable(gone)
				}
				c, log := startedFrom(t, b, inbox.ConsumerConfig{}, func(context.Context, *memory.Tx, *postrider.Message) error { return nil })
				for range 2 {
					for _, away := range []error{gone, nil} {
						b.SetUnavailable(away)
						for range 20 {
							time.Sleep(20 * time.Second)
							if c.Connected() != (away == nil) {
								t.Fatalf("connected: %v, and the broker is away: %v\n%s", c.Connected(), away, log)
							}
						}
					}
				}
			})
		})
	}
}

// TestOutagesOfAnIdleConsumer: each is logged, although nothing was read between them.
func TestOutagesOfAnIdleConsumer(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]memorybroker.SubscriberConfig{
		"log": {Topics: []string{"t"}, Partitions: 1}, "group": {Group: "view", Topics: []string{"t"}, Partitions: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t)
				c, log := run(t, memory.New(memory.Config{}), b, source, inbox.ConsumerConfig{},
					func(context.Context, *memory.Tx, *postrider.Message) error { return nil })
				for range 3 {
					time.Sleep(5 * time.Minute)
					b.SetUnavailable(errors.New("away"))
					time.Sleep(5 * time.Minute)
					b.SetUnavailable(nil)
				}
				time.Sleep(5 * time.Minute)
				lost := strings.Count(log.String(), "keeps trying")
				found := strings.Count(log.String(), "is available again") + strings.Count(log.String(), "can be read again")
				if lost != 3 || found != 3 || !c.Connected() {
					t.Errorf("logged %d times that the broker is away, and %d times that it is back; want 3; connected: %v", lost, found, c.Connected())
				}
			})
		})
	}
}
