// Package given declares what the page takes for granted.
package given

import (
	"context"
	"expvar"

	"github.com/jackc/pgx/v5"
	"github.com/postrider/postrider"
	"github.com/postrider/postrider/broker/nats"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/inbox/guard"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

type OrderPlacedData struct{ OrderID string }

var (
	OrderPlaced = postrider.Define[OrderPlacedData]("order.placed")
	in          *inbox.Inbox[pgx.Tx]
	r           *relay.Relay
	charges     *guard.Guard
	m           *postrider.Message
	amount      int
	payments    interface {
		Charge(ctx context.Context, amount int, idempotencyKey string) error
	}
	outboxStore *postgres.Store
	key, id     string
)
