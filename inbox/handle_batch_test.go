package inbox_test

import (
	"context"
	"errors"
	"testing"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memory"
)

// TestUpcastOfABatch: the begin of a batch would see messages as they were published, and its Handle what an upcaster made of them.
func TestUpcastOfABatch(t *testing.T) {
	t.Parallel()
	in, err := inbox.New(memory.New(memory.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	source, err := newBroker(t).Subscriber(memorybroker.SubscriberConfig{Topics: []string{"t"}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := inbox.NewConsumer(in, source, inbox.ConsumerConfig{Name: "view"})
	if err != nil {
		t.Fatal(err)
	}
	begin := func(context.Context, *memory.Tx, []*postrider.Message) (relay.Batch, error) { return nil, nil }
	if err := c.HandleBatch([]string{"a"}, begin); err != nil {
		t.Fatal(err)
	}
	older, newer := postrider.Define[int]("a"), postrider.Define[int]("a").WithSchemaVersion(2)
	if err := inbox.Upcast(c, older, newer, func(n int) (int, error) { return n, nil }); !errors.Is(err, inbox.ErrDuplicateHandler) {
		t.Errorf("error %v, want %v", err, inbox.ErrDuplicateHandler)
	}
}
