package shop

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/postrider/postrider/saga"
)

// FulfilmentName is the name of the saga of an order.
const FulfilmentName = "order-fulfilment"

// Terms are the limits of the saga. The zero value of each field means its default.
type Terms struct {
	// StepTimeout is how long inventory, payments and shipping have to answer. Default: 15 s.
	StepTimeout time.Duration
	// Deadline is how long an order may take until its parcel leaves. Default: 60 s; with reviews, 72 h.
	Deadline time.Duration
	// ReviewAbove is the total above which a person must release an order, with version 2 of the saga. Default: 5,000.00.
	ReviewAbove Money
	// Compensate says who starts the undos of an order that is fulfilled by events. Default: saga.RequestUndos.
	Compensate saga.Compensation
}

// change is what a local step does: it changes the order in the database of the orders service.
type change = func(ctx context.Context, tx *sql.Tx, o *Order) error

// Fulfilment takes an order from stock to parcel: reserve, charge, confirm, ship. become returns the change of an order to a status.
// Version 2 adds the review of expensive orders; instances of version 1 continue without it.
func Fulfilment(version int, terms Terms, become func(Status) change) saga.Definition[Order] {
	deadline := 60 * time.Second
	if version > 1 {
		deadline = 72 * time.Hour
	}
	steps := []saga.Step[Order]{
		// The order was inserted together with the instance. This step has an undo, which is the last one to run.
		saga.Local[Order, *sql.Tx]{Name: "open", Do: nothing, Undo: become(Cancelled)},
		saga.Request[Order, StockOrder, Reservation]{
			Name: "reserve", Step: ReserveStock, Timeout: cmp.Or(terms.StepTimeout, 15*time.Second),
			Command: func(o Order) StockOrder { return StockOrder{o.ID, o.Lines} },
			Done:    func(o *Order, r Reservation) { o.Reservation, o.Total = r.ID, r.Total },
		},
		saga.Request[Order, Charge, Receipt]{
			Name: "charge", Step: ChargeCard, Timeout: cmp.Or(terms.StepTimeout, 15*time.Second),
			Command: func(o Order) Charge { return Charge{o.ID, o.Customer, o.Total} },
			Done:    func(o *Order, r Receipt) { o.Payment = r.Payment },
		},
		saga.Local[Order, *sql.Tx]{Name: "confirm", Do: become(Confirmed), Undo: become(Pending)},
		saga.Await[Order, struct{}]{
			Name: "hold", OnlyIf: func(o Order) bool { return o.Hold }, Signal: ReleaseOrder, Timeout: 72 * time.Hour,
		},
		saga.Request[Order, Shipment, Parcel]{
			Name: "ship", Step: ShipParcel, Timeout: cmp.Or(terms.StepTimeout, 15*time.Second), Pivot: true, // a parcel that has left does not return
			Command: func(o Order) Shipment { return Shipment{o.ID} },
			Done:    func(o *Order, p Parcel) { o.Parcel = p.Number },
		},
		saga.Local[Order, *sql.Tx]{Name: "close", Do: become(Shipped)},
	}
	if version > 1 {
		steps = slices.Insert(steps, 2, review(cmp.Or(terms.ReviewAbove, 5_000_00))) // after "reserve", which knows the total
	}
	return saga.Definition[Order]{
		Name: FulfilmentName, Version: version, Steps: steps,
		Key:      func(o Order) string { return KeyOf(o.ID) },
		Deadline: cmp.Or(terms.Deadline, deadline),
	}
}

// review asks a person about an expensive order.
func review(above Money) saga.Step[Order] {
	return saga.Ask[Order]{
		Name:     "review",
		OnlyIf:   func(o Order) bool { return o.Total > above },
		Question: func(o Order) string { return "Release order " + o.ID + " over " + o.Total.String() + "?" },
		Options:  []string{"release", "reject"}, Roles: []string{"fraud"}, Timeout: 48 * time.Hour,
		Answered: func(_ *Order, a saga.Answer) error {
			if a.Option == "reject" {
				return saga.Refuse("review", errors.New("rejected by "+a.Actor))
			}
			return nil
		},
	}
}

func nothing(context.Context, *sql.Tx, *Order) error { return nil }
