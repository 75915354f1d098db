// Package given declares what the page takes for granted.
package given

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/postridertest"
	"github.com/postrider/postrider/store/memory"
)

type (
	Order           struct{ ID string }
	OrderPlacedData struct {
		OrderID string
		Total   int
	}
)

var (
	OrderPlaced    = postrider.Define[OrderPlacedData]("order.placed")
	OrderCancelled = postrider.Define[OrderPlacedData]("order.cancelled")

	t           *testing.T
	box         *outbox.Outbox[pgx.Tx]
	order       Order
	order42     *postrider.Message
	errRollback = errors.New("rolled back")
	shop        interface {
		PlaceOrder(ctx context.Context, tx pgx.Tx, o Order) error
	}
)

func ship(context.Context, postrider.Typed[OrderPlacedData]) error { return nil }
