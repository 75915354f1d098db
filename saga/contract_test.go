package saga_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/saga"
)

// TestContractValidate: each error of a contract is named, with what to do.
func TestContractValidate(t *testing.T) {
	t.Parallel()
	if err := FulfilmentByEvents.Validate(); err != nil {
		t.Error(err)
	}
	for name, tt := range map[string]struct {
		change func(events []saga.Event)
		want   string
	}{
		"no undo":        {func(e []saga.Event) { e[1].Undo, e[1].Undone = nil, nil }, "give it both, or NoUndo"},
		"undo unseen":    {func(e []saga.Event) { e[1].Undone = nil }, "has Undo and no Undone"},
		"no start":       {func(e []saga.Event) { e[0].Start = false }, "mark the one that all others come after"},
		"no end":         {func(e []saga.Event) { e[3].End = false }, "mark those that complete the saga"},
		"order":          {func(e []saga.Event) { e[1].After = saga.Defs{CardCharged} }, "list events in the order in which they happen"},
		"two meanings":   {func(e []saga.Event) { e[2].Fails = saga.Defs{StockReserved} }, "a message type has one meaning"},
		"unknown pivot":  {func(e []saga.Event) { e[3].Pivot = true }, "give it Undo and Undone, or NoUndo"},
		"nil definition": {func(e []saga.Event) { e[3].On = nil }, "On is nil"},
	} {
		c := FulfilmentByEvents
		c.Events = append([]saga.Event(nil), c.Events...)
		tt.change(c.Events)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}
