package saga_test

import (
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/saga"
)

// contract is one of three events.
func contract() saga.Contract {
	return saga.Contract{Name: "by-events", Version: 1, Events: []saga.Event{
		{On: OrderCreated, Service: "orders", Start: true, Undo: CancelOrder, Undone: OrderCancelled},
		{On: StockReserved, Service: "inventory", After: saga.Defs{OrderCreated}, Undo: ReleaseStock, Undone: StockReleased},
		{On: OrderConfirmed, Service: "orders", After: saga.Defs{StockReserved}, End: true},
	}}
}

const trackedToEnd = "p-1 is completed"

// ofContract lets a case change the contract and what is published.
func ofContract(change func(s *stage, c *saga.Contract)) func(s *stage) any {
	return func(s *stage) any {
		s.contract, s.act = contract(), events(OrderCreated, StockReserved, OrderConfirmed)
		change(s, &s.contract)
		return &s.contract
	}
}

// ofEvent is that of an event of the contract.
func ofEvent(n int, change func(s *stage, c *saga.Contract)) func(s *stage) any {
	return func(s *stage) any {
		ofContract(change)(s)
		return &s.contract.Events[n]
	}
}

func contractFields() map[string]fieldCase {
	as := func(*stage, *saga.Contract) {}
	report := func(messageType string) postrider.Definition[saga.Report] {
		return postrider.Define[saga.Report](messageType)
	}
	return map[string]fieldCase{
		"Contract.Name":    {trackedToEnd, ofContract(as)},
		"Contract.Version": {trackedToEnd, ofContract(as)},
		"Contract.Events":  {trackedToEnd, ofContract(as)},
		"Contract.Deadline": {"turned back", ofContract(func(s *stage, c *saga.Contract) {
			c.Deadline, s.act = time.Minute, events(OrderCreated)
		})},
		"Contract.CancelWithin": {"undo.sent stock.reserved", ofContract(func(s *stage, c *saga.Contract) {
			c.CancelWithin = time.Hour
			s.act = func(s *stage) {
				events(OrderCreated, StockReserved, OrderConfirmed)(s)
				s.operate("p-1", saga.Operation{Verb: saga.Cancel})
			}
		})},
		"Contract.Compensate": {"undo.awaited stock.reserved", ofContract(func(s *stage, c *saga.Contract) {
			c.Compensate, c.Events[2].Fails = saga.Observe, saga.Defs{OutOfStock}
			s.act = events(OrderCreated, StockReserved, OutOfStock)
		})},
		"Contract.Instance": {"42 is running", ofContract(func(s *stage, c *saga.Contract) {
			c.Instance, s.act = func(*postrider.Message) string { return "42" }, events(OrderCreated)
		})},
		"Contract.OnTimedOut": {"order.late on order.late", ofContract(func(s *stage, c *saga.Contract) {
			c.Deadline, c.OnTimedOut, s.act = time.Minute, report("order.late"), events(OrderCreated)
		})},
		"Contract.OnEnded": {"order.over on order.over", ofContract(func(_ *stage, c *saga.Contract) { c.OnEnded = report("order.over") })},
	}
}

func eventFields() map[string]fieldCase {
	as := func(*stage, *saga.Contract) {}
	lines := func(s *stage, c *saga.Contract) {
		c.Events[1].Items = saga.ItemsOf(OrderCreated, func(Order) []string { return []string{"a", "b"} })
		c.Events[1].Item = saga.ItemFuncs{saga.ItemOf(StockReserved, func(o Order) string { return o.SKU })}
		s.act = func(s *stage) {
			s.event(OrderCreated, Order{})
			s.event(StockReserved, Order{SKU: "a"})
		}
	}
	fails := func(s *stage, c *saga.Contract) {
		c.Events[1].Fails, s.act = saga.Defs{OutOfStock}, events(OrderCreated, OutOfStock)
	}
	return map[string]fieldCase{
		"Event.On":      {"step.done stock.reserved", ofEvent(1, as)},
		"Event.Service": {"waiting stock.reserved inventory", ofEvent(1, as)},
		"Event.Start":   {trackedToEnd, ofEvent(0, as)},
		"Event.End":     {trackedToEnd, ofEvent(2, as)},
		"Event.After":   {"waiting stock.reserved", ofEvent(1, as)},
		"Event.Within": {"timed out stock.reserved", ofEvent(1, func(s *stage, c *saga.Contract) {
			c.Events[1].Within, s.act = time.Minute, events(OrderCreated)
		})},
		"Event.Fails":  {"step.refused stock.reserved", ofEvent(1, fails)},
		"Event.Undo":   {"order.cancel on order.cancel", ofEvent(0, fails)},
		"Event.Undone": {"order.cancel on order.cancel", ofEvent(0, fails)},
		"Event.NoUndo": {"p-1 is compensated", ofEvent(0, func(s *stage, c *saga.Contract) {
			fails(s, c)
			c.Events[0].Undo, c.Events[0].Undone, c.Events[0].NoUndo = nil, nil, true
		})},
		"Event.Optional": {trackedToEnd, ofEvent(1, func(s *stage, c *saga.Contract) {
			c.Events[1].Optional, c.Events[2].After = true, saga.Defs{OrderCreated}
			s.act = events(OrderCreated, OrderConfirmed)
		})},
		"Event.Pivot": {"-turned back", ofEvent(1, func(s *stage, c *saga.Contract) {
			c.Events[1].Pivot, c.Events[2].Fails = true, saga.Defs{OutOfStock}
			s.act = events(OrderCreated, StockReserved, OutOfStock)
		})},
		"Event.Items": {"waiting stock.reserved[b]", ofEvent(1, lines)},
		"Event.Item":  {"step.done stock.reserved[a]", ofEvent(1, lines)},
	}
}
