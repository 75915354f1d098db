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
	_, err := s.participate(ctx, func(p *saga.Participant[*sql.Tx]) error {
		return saga.Handle(p, ShipParcel, h.ship, nil) // nobody fetches a parcel back
	}, ParcelCommands)
	return err
}

// ship sends the parcel of an order, and tells everybody.
func (h shipping) ship(ctx context.Context, tx *sql.Tx, m postrider.Typed[Shipment]) (Parcel, error) {
	p := Parcel{Order: m.Data.Order, Number: postrider.NewID()}
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
