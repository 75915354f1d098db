package webtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inspect"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// Chain is an order that goes on in another store, of a service for billing. An effect is a dead letter there.
type Chain struct {
	// Shop and Billing are the stores; what is in the latter is reached through Others, with a store that cannot be reached.
	Shop, Billing *memory.Store
	// Order caused everything; Requested is a message in the middle, with a cause and effects, and Paid one in the other store.
	Order, Requested, Paid string
}

// NewChain publishes the messages of a chain. Their keys have the given text, their payloads the Secret.
func NewChain(ctx context.Context, key string) (*Chain, error) {
	c := &Chain{Shop: memory.New(memory.Config{Partitions: partitions}), Billing: memory.New(memory.Config{Partitions: partitions})}
	var err error
	publish := func(s *memory.Store, kind, cause string) string {
		key := key
		if s == c.Billing {
			key += "/7"
		}
		m := &postrider.Message{
			Type: kind, Topic: "orders", Key: key, Subject: key, CorrelationID: key, CausationID: cause,
			Headers: map[string]string{"authorization": Secret}, Payload: fmt.Appendf(nil, `{"card":%q}`, Secret),
		}
		m.FillDefaults("shop", time.Now())
		tx, failed := s.Begin(ctx)
		err = errors.Join(err, failed, s.Insert(ctx, tx, []*postrider.Message{m}), s.Commit(ctx, tx))
		return m.ID
	}
	c.Order = publish(c.Shop, "order.placed", "")
	c.Requested = publish(c.Shop, "payment.requested", c.Order)
	publish(c.Shop, "stock.reserved", c.Order)
	c.Paid = publish(c.Billing, "payment.accepted", c.Requested)
	publish(c.Shop, "order.confirmed", c.Paid)
	publish(c.Shop, "mail.requested", c.Paid)
	invoice := publish(c.Billing, "invoice.created", c.Paid)
	publish(c.Shop, "invoice.archived", invoice)
	publish(c.Shop, "audit.noted", c.Requested)
	return c, errors.Join(err, deadLetterOne(ctx, c.Billing, invoice, c.Paid, key))
}

// deadLetterOne makes a message a dead letter of a consumer.
func deadLetterOne(ctx context.Context, s *memory.Store, id, cause, key string) error {
	const name = "ledger"
	m := &postrider.Message{ID: id, Type: "invoice.created", Topic: "orders", Key: key, CausationID: cause}
	m.FillDefaults("shop", time.Now())
	err := s.Enroll(ctx, name)
	tx, failed := s.Begin(ctx)
	return errors.Join(err, failed, s.Park(ctx, tx, name, []store.ParkRequest{{Dead: &store.DeadRequest{Reason: "refused"}, Cause: "card " + Secret, Message: m}}), s.Commit(ctx, tx))
}

// ErrUnreachable is the error of the store that cannot be reached.
var ErrUnreachable = errors.New("dial tcp 10.0.0.9:5432: connect: connection refused")

// Others are the store of billing and, unless reachable, one of stock that cannot be reached.
func (c *Chain) Others(reachable bool) []inspect.Source {
	out := []inspect.Source{{Name: "billing", Open: func(context.Context) (inspect.Store, error) { return c.Billing, nil }}}
	if !reachable {
		out = append(out, inspect.Source{Name: "stock", Open: func(context.Context) (inspect.Store, error) { return nil, ErrUnreachable }})
	}
	return out
}

// Effects publishes n messages that a message did not cause, and then one that it did: in one partition, where a search reads them in this
// order.
func (s *Shop) Effects(ctx context.Context, cause string, n int) error {
	tx, err := s.Begin(ctx)
	for i := range n + 1 {
		m := &postrider.Message{Type: "order.placed", Topic: "orders", Key: "order/many", Payload: []byte(`{}`)}
		if i == n {
			m.Type, m.CausationID = "order.late", cause
		}
		m.FillDefaults("shop", time.Now())
		err = errors.Join(err, s.Insert(ctx, tx, []*postrider.Message{m}))
	}
	return errors.Join(err, s.Commit(ctx, tx))
}
