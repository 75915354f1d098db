package shop

import (
	"context"
	"database/sql"
	"errors"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox"
)

const pointTable = `CREATE TABLE IF NOT EXISTS points (customer TEXT PRIMARY KEY, points BIGINT NOT NULL)`

// loyalty gives customers a point for each whole unit of money. It came later than the other services, which do not know it.
type loyalty struct{ *Service }

func openLoyalty(ctx context.Context, s *Service) error {
	l := loyalty{s}
	if err := l.createTables(ctx, pointTable); err != nil {
		return err
	}
	c, err := s.listen(ctx, OrderEvents)
	if err != nil {
		return err
	}
	return errors.Join(inbox.Handle(c, OrderChanged, l.reward), s.publish(ctx))
}

// reward gives the points of an order that is shipped: once, since an event has its effect once. If the order is fulfilled by events,
// this is one more.
func (l loyalty) reward(ctx context.Context, tx *sql.Tx, m postrider.Typed[OrderState]) error {
	if m.Data.Status != Shipped {
		return nil
	}
	const add = `INSERT INTO points (customer, points) VALUES ($1, $2) ON CONFLICT (customer) DO UPDATE SET points = points.points + excluded.points`
	if _, err := tx.ExecContext(ctx, add, m.Data.Customer, m.Data.Total/100); err != nil || m.Data.Kind != choreographed {
		return err
	}
	event, err := PointsGiven.New(Order{ID: m.Data.ID, Customer: m.Data.Customer, Total: m.Data.Total})
	if err != nil {
		return err
	}
	event.CorrelationID = m.Data.ID
	_, err = l.outbox.Publish(ctx, tx, event)
	return err
}
