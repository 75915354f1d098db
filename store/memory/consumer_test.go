package memory_test

import (
	"testing"

	"github.com/postrider/postrider/inbox/inboxtest"
	"github.com/postrider/postrider/store/memory"
)

var consumers = inboxtest.Harness[*memory.Tx]{
	Open: func(testing.TB) inboxtest.Store[*memory.Tx] {
		return memory.New(memory.Config{Partitions: 4})
	},
	Bubble:    true,
	Histories: 150,
}

func TestConsumers(t *testing.T) {
	t.Parallel()
	inboxtest.Run(t, consumers)
}

func TestConsumersModel(t *testing.T) {
	t.Parallel()
	inboxtest.Model(t, consumers)
}
