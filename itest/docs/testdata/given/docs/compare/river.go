// Package given declares what the page takes for granted.
package given

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/postgres"
)

type (
	Order        struct{ ID string }
	PublishOrder struct{ OrderID string }
	ShipOrder    struct{ OrderID string }
	ShipWorker   struct {
		river.WorkerDefaults[ShipOrder]
	}
)

func (PublishOrder) Kind() string { return "publish-order" }
func (ShipOrder) Kind() string    { return "ship-order" }

func (*ShipWorker) ship(context.Context, string) error { return nil }

var (
	OrderPlaced = postrider.Define[Order]("order.placed")
	jobs        *river.Client[pgx.Tx]
	shop        *outbox.Outbox[pgx.Tx]
	tx          pgx.Tx
	order       Order
	orders      []Order
	tomorrow    time.Time
	store       *postgres.Store
	err         error
)
