// Package shop is a shop of four services: orders, inventory, payments and shipping. Each has a database, an outbox, a relay and a
// consumer of its own; a saga takes an order from stock to parcel. Read contracts.go, then fulfilment.go, then a service. In
// choreography.go, the same order is fulfilled by services that react to each other's events.
package shop

import (
	"fmt"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/saga"
)

// The topics of the shop: for each service its commands, and its events.
const (
	OrderCommands   = "shop.orders.commands"
	StockCommands   = "shop.stock.commands"
	PaymentCommands = "shop.payments.commands"
	ParcelCommands  = "shop.parcels.commands"

	OrderEvents   = "shop.orders"
	StockEvents   = "shop.stock"
	PaymentEvents = "shop.payments"
	ParcelEvents  = "shop.parcels"
	PointEvents   = "shop.points"
)

// The steps that inventory, payments and shipping offer to sagas.
var (
	ReserveStock = saga.DefineStep[StockOrder, Reservation]("stock.reserve").WithTopic(StockCommands).
			WithKey(func(s StockOrder) string { return KeyOf(s.Order) })
	ChargeCard = saga.DefineStep[Charge, Receipt]("card.charge").WithTopic(PaymentCommands).
			WithKey(func(c Charge) string { return KeyOf(c.Order) })
	ShipParcel = saga.DefineStep[Shipment, Parcel]("parcel.ship").WithTopic(ParcelCommands).
			WithKey(func(s Shipment) string { return KeyOf(s.Order) }).WithoutUndo()
)

// The events of the shop, and the signal that ends the hold of an order.
var (
	OrderChanged = postrider.Define[OrderState]("order.changed").WithTopic(OrderEvents).
			WithKey(func(o OrderState) string { return KeyOf(o.ID) })
	ParcelShipped = postrider.Define[Parcel]("parcel.shipped").WithTopic(ParcelEvents).
			WithKey(func(p Parcel) string { return KeyOf(p.Order) })
	StockReplenished = postrider.Define[Replenishment]("stock.replenished").WithTopic(StockEvents).
				WithKey(func(r Replenishment) string { return "product/" + r.SKU })
	ReleaseOrder = postrider.Define[struct{}]("order.release")
)

// KeyOf is the key of everything about an order, its unit of order.
func KeyOf(order string) string { return "order/" + order }

// Order is what is known about an order: the data of its saga, whose steps read it and write into it, and of the events about it.
type Order struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	Lines    []Line `json:"lines"`
	// Hold: the order is not shipped before its customer releases it.
	Hold bool `json:"hold,omitzero"`
	// Total comes from the catalog, never from the customer.
	Total       Money  `json:"total,omitzero"`
	Reservation string `json:"reservation,omitzero"`
	Payment     string `json:"payment,omitzero"`
	Parcel      string `json:"parcel,omitzero"`
}

// Line is a line of an order.
type Line struct {
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
}

// StockOrder asks inventory to reserve goods.
type StockOrder struct {
	Order string `json:"order"`
	Lines []Line `json:"lines"`
}

// Reservation says that all lines of an order are reserved, and what they cost.
type Reservation struct {
	ID    string `json:"id"`
	Total Money  `json:"total"`
}

// Charge asks payments for money.
type Charge struct {
	Order    string `json:"order"`
	Customer string `json:"customer"`
	Amount   Money  `json:"amount"`
}

// Receipt says that a card was charged.
type Receipt struct {
	Payment string `json:"payment"`
}

// Shipment asks shipping to send a parcel.
type Shipment struct {
	Order string `json:"order"`
}

// Parcel is a parcel that has left.
type Parcel struct {
	Order  string `json:"order"`
	Number string `json:"number"`
}

// Replenishment says that goods have arrived.
type Replenishment struct {
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
}

// OrderState is an order as others see it.
type OrderState struct {
	ID       string `json:"id"`
	Kind     string `json:"kind"`
	Customer string `json:"customer"`
	Status   Status `json:"status"`
	Total    Money  `json:"total"`
}

// Status is the status of an order.
type Status string

// The statuses of an order. The last two are final.
const (
	Pending   Status = "PENDING"
	Confirmed Status = "CONFIRMED"
	Shipped   Status = "SHIPPED"
	Cancelled Status = "CANCELLED"
)

// Final reports whether the order will not change any more.
func (s Status) Final() bool { return s == Shipped || s == Cancelled }

// Money is an amount in cents.
type Money int64

// String writes an amount with its cents, e.g. "5,999.99".
func (m Money) String() string {
	if m < 0 {
		return "-" + (-m).String()
	}
	whole := fmt.Sprint(int64(m) / 100)
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	return fmt.Sprintf("%s.%02d", whole, m%100)
}
