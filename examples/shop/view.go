package shop

import (
	"context"
	"database/sql"
	"net/http"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox"
)

const viewTable = `CREATE TABLE IF NOT EXISTS order_view (id TEXT PRIMARY KEY, customer TEXT NOT NULL, status TEXT NOT NULL, total BIGINT NOT NULL)`

// view is a read model of the orders, from their events. If its database is dropped, it reads all events again.
type view struct{ *Service }

func openView(ctx context.Context, s *Service) error {
	v := view{s}
	if err := v.createTables(ctx, viewTable); err != nil {
		return err
	}
	c, err := s.listen(ctx, OrderEvents)
	if err != nil {
		return err
	}
	s.mux.HandleFunc("GET /customers/{customer}/orders", v.handleList)
	return inbox.Handle(c, OrderChanged, v.apply)
}

// apply takes the state of an order. The events of an order arrive in order.
func (v view) apply(ctx context.Context, tx *sql.Tx, m postrider.Typed[OrderState]) error {
	const upsert = `INSERT INTO order_view (id, customer, status, total) VALUES ($1, $2, $3, $4)
		ON CONFLICT (id) DO UPDATE SET status = excluded.status, total = excluded.total`
	_, err := tx.ExecContext(ctx, upsert, m.Data.ID, m.Data.Customer, m.Data.Status, m.Data.Total)
	return err
}

func (v view) handleList(w http.ResponseWriter, r *http.Request) {
	const query = `SELECT id, customer, status, total FROM order_view WHERE customer = $1 ORDER BY id`
	rows, err := v.db.DB.QueryContext(r.Context(), query, r.PathValue("customer"))
	found, err := collect(rows, err, func(o *OrderState) []any { return []any{&o.ID, &o.Customer, &o.Status, &o.Total} })
	answer(w, http.StatusOK, found, err)
}
