// Package given declares what the page takes for granted.
package given

import (
	"context"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/saga"
)

type (
	Line struct {
		SKU         string
		Quantity    int
		Reservation string
	}
	Order struct {
		ID      string
		Total   int
		Lines   []Line
		Receipt string
	}
	StockOrder struct {
		SKU      string
		Quantity int
	}
	Reservation struct{ ID string }
	Payment     struct {
		Order   string
		Total   int
		Receipt string
	}
	Stay    struct{ Nights int }
	Weeks   struct{ Weeks int }
	Booking struct{ ID string }
)

var (
	ReserveStock = saga.DefineStep[StockOrder, Reservation]("stock.reserve")
	BookRoom     = saga.DefineStep[Stay, Booking]("room.book")
	Paying       saga.Definition[Payment]
	p            *saga.Participant[any]
	hotel        interface {
		Book(ctx context.Context, key string, stay Stay) (Booking, error)
		Cancel(ctx context.Context, key, booking string) error
	}
)
