package shop

import (
	"context"
	"database/sql"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/saga"
)

// Nothing in this table prevents a second parcel for an order: the participant's records do.
const (
	parcelTable = `CREATE TABLE IF NOT EXISTS parcels (number TEXT PRIMARY KEY, order_id TEXT NOT NULL)`
	parcelIndex = `CREATE INDEX IF NOT EXISTS parcels_by_order ON parcels (order_id)`
)

// shipping owns parcels.
type shipping struct{ *Service }

func openShipping(ctx context.Context, s *Service) error {
	h := shipping{s}
	if err := h.createTables(ctx, parcelTable, parcelIndex); err != nil {
		return err
	}
	if err := saga.Handle(s.participant, ShipParcel, h.ship, nil); err != nil { // nobody fetches a parcel back
		return err
	}
	commands, events, err := s.participate(ctx, ParcelCommands, OrderEvents)
	if err != nil {
		return err
	}
	return h.choreograph(commands, events)
}

// ship does the step ShipParcel.
func (h shipping) ship(ctx context.Context, tx *sql.Tx, m postrider.Typed[Shipment]) (Parcel, error) {
	return h.send(ctx, tx, m.Data.Order)
}

// send sends the parcel of an order, and tells everybody.
func (h shipping) send(ctx context.Context, tx *sql.Tx, order string) (Parcel, error) {
	p := Parcel{Order: order, Number: postrider.NewID()}
	if _, err := tx.ExecContext(ctx, `INSERT INTO parcels (number, order_id) VALUES ($1, $2)`, p.Number, p.Order); err != nil {
		return p, err
	}
	event, err := ParcelShipped.New(p)
	if err != nil {
		return p, err
	}
	_, err = h.outbox.Publish(ctx, tx, event)
	return p, err
}
