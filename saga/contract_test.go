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
		"no undo":       {func(e []saga.Event) { e[1].Undo, e[1].Undone = nil, nil }, "give it both, or NoUndo"},
		"undo unseen":   {func(e []saga.Event) { e[1].Undone = nil }, "has Undo and no Undone"},
		"no start":      {func(e []saga.Event) { e[0].Start = false }, "mark the one that all others come after"},
		"no end":        {func(e []saga.Event) { e[3].End = false }, "mark those that complete the saga"},
		"order":         {func(e []saga.Event) { e[1].After = saga.Defs{CardCharged} }, "list events in the order in which they happen"},
		"two meanings":  {func(e []saga.Event) { e[2].Fails = saga.Defs{StockReserved} }, "a message type has one meaning"},
		"unknown pivot": {func(e []saga.Event) { e[3].Pivot = true }, "give it Undo and Undone, or NoUndo"},
		"items observed": {func(e []saga.Event) {
			e[1].Items = saga.ItemsOf(OrderCreated, func(o Order) []string { return []string{o.SKU} })
			e[1].Item = saga.ItemFuncs{saga.ItemOf(StockReserved, func(o Order) string { return o.SKU })}
		}, "has Items and no ItemOf its Undone"},
		"items of an alternative": {func(e []saga.Event) {
			e[3].After = saga.Defs{saga.OneOf(StockReserved, CardCharged)}
			e[3].Items = saga.ItemsOf(CardCharged, func(o Order) []string { return []string{o.SKU} })
			e[3].Item = saga.ItemFuncs{saga.ItemOf(OrderConfirmed, func(o Order) string { return o.SKU })}
		}, "need not happen before it"},
		"items of an optional event": {func(e []saga.Event) {
			e[2].Optional, e[2].Fails, e[3].After = true, nil, saga.Defs{StockReserved}
			e[3].Items = saga.ItemsOf(CardCharged, func(o Order) []string { return []string{o.SKU} })
			e[3].Item = saga.ItemFuncs{saga.ItemOf(OrderConfirmed, func(o Order) string { return o.SKU })}
		}, "need not happen before it"},
		"nil definition": {func(e []saga.Event) { e[3].On = nil }, "On is nil"},
	} {
		c := FulfilmentByEvents
		c.Events = append([]saga.Event(nil), c.Events...)
		tt.change(c.Events)
		if name == "items observed" {
			c.Compensate = saga.Observe
		}
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}
