package inbox_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/store/memory"
)

// silentReporter is a log whose broker does not answer when it is told positions.
type silentReporter struct{ *memorybroker.Subscriber }

func (silentReporter) ReportPosition(ctx context.Context, _ string, _ postrider.Position) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestHandoverDoesNotWaitForReports: a second process gets its share of the partitions within two heartbeats although the broker does not
// answer when it is told positions, on which nothing depends; and the first one keeps its own share.
func TestHandoverDoesNotWaitForReports(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, b := memory.New(memory.Config{}), newBroker(t)
		start := func() *text {
			subscriber, err := b.Subscriber(memorybroker.SubscriberConfig{Topics: []string{"t"}, Partitions: 16})
			if err != nil {
				t.Fatal(err)
			}
			_, log := runFrom(t, s, silentReporter{subscriber}, inbox.ConsumerConfig{},
				func(context.Context, *memory.Tx, *postrider.Message) error { return nil })
			return log
		}
		first := start()
		for range 60 {
			publishTo(t, b, time.Now().String())
			time.Sleep(time.Second)
		}
		second := start()
		time.Sleep(10 * time.Second)
		if !strings.Contains(first.String(), "partition handed over") {
			t.Errorf("nothing was handed over after two heartbeats\n%s", first)
		}
		time.Sleep(time.Minute)
		for _, log := range []*text{first, second} {
			if strings.Contains(log.String(), "ended without being renewed") || strings.Contains(log.String(), "could not hand partitions over") {
				t.Errorf("a lease ended, or lasted until it did\n%s", log)
			}
		}
	})
}
