package shop

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/saga"
)

// Nothing in these tables prevents a reservation from being made twice: the participant's records do.
const (
	productTable = `CREATE TABLE IF NOT EXISTS products (
		sku TEXT PRIMARY KEY, name TEXT NOT NULL, price BIGINT NOT NULL, bought BIGINT NOT NULL, free BIGINT NOT NULL CHECK (free >= 0))`
	reservationTable = `CREATE TABLE IF NOT EXISTS reservations (
		id TEXT NOT NULL, order_id TEXT NOT NULL, sku TEXT NOT NULL, quantity BIGINT NOT NULL, state TEXT NOT NULL, PRIMARY KEY (id, sku))`
	reservationIndex = `CREATE INDEX IF NOT EXISTS reservations_by_order ON reservations (order_id)`
)

// The states of a reservation, one for each line of an order.
const (
	reserved = "RESERVED"
	released = "RELEASED"
	sold     = "SOLD"
)

// inventory owns products, stock and reservations.
type inventory struct{ *Service }

func openInventory(ctx context.Context, s *Service) error {
	v := inventory{s}
	s.batch = 1 // many orders want the same products; together in a transaction, they would lock them in any order
	if err := v.createTables(ctx, productTable, reservationTable, reservationIndex); err != nil {
		return err
	}
	for _, p := range Catalog(s.cfg.Seed) {
		if err := v.addProduct(ctx, p); err != nil {
			return err
		}
	}
	if err := saga.Handle(s.participant, ReserveStock, v.reserve, v.release); err != nil {
		return err
	}
	commands, events, err := s.participate(ctx, StockCommands, s.hears([]string{OrderEvents, ParcelEvents}, PaymentEvents)...)
	if err != nil {
		return err
	}
	s.run = append(s.run, v.replenish)
	s.mux.HandleFunc("POST /products", v.handleAdd)
	s.mux.HandleFunc("GET /products", v.handleList)
	return errors.Join(inbox.Handle(events, ParcelShipped, v.sell), v.choreograph(commands, events))
}

// reserve does the step ReserveStock.
func (v inventory) reserve(ctx context.Context, tx *sql.Tx, m postrider.Typed[StockOrder]) (Reservation, error) {
	r, err := v.take(ctx, tx, m.Data.Order, m.Data.Lines)
	if errors.Is(err, errOutOfStock) {
		return r, saga.Refuse("out of stock", err)
	}
	return r, err
}

// release undoes reserve.
func (v inventory) release(ctx context.Context, tx *sql.Tx, o StockOrder, did Reservation) error {
	return v.put(ctx, tx, o.Lines, did.ID)
}

// errOutOfStock: there is not enough of a product, or there is no such product.
var errOutOfStock = errors.New("out of stock")

// take takes every line of an order from the stock.
func (v inventory) take(ctx context.Context, tx *sql.Tx, order string, lines []Line) (Reservation, error) {
	const take = `UPDATE products SET free = free - $1 WHERE sku = $2 AND free >= $1 RETURNING price`
	const insert = `INSERT INTO reservations (id, order_id, sku, quantity, state) VALUES ($1, $2, $3, $4, $5)`
	r := Reservation{ID: postrider.NewID()}
	for _, l := range slices.SortedFunc(slices.Values(lines), bySKU) { // in one order, so that two orders do not deadlock
		var price Money
		err := tx.QueryRowContext(ctx, take, l.Quantity, l.SKU).Scan(&price)
		if errors.Is(err, sql.ErrNoRows) {
			return r, fmt.Errorf("%d of %s: %w", l.Quantity, l.SKU, errOutOfStock)
		}
		if err != nil {
			return r, err
		}
		if _, err := tx.ExecContext(ctx, insert, r.ID, order, l.SKU, l.Quantity, reserved); err != nil {
			return r, err
		}
		r.Total += price * Money(l.Quantity)
	}
	return r, nil
}

// put puts the lines of a reservation back into the stock.
func (v inventory) put(ctx context.Context, tx *sql.Tx, lines []Line, reservation string) error {
	const put = `UPDATE products SET free = free + $1 WHERE sku = $2`
	for _, l := range slices.SortedFunc(slices.Values(lines), bySKU) {
		if _, err := tx.ExecContext(ctx, put, l.Quantity, l.SKU); err != nil {
			return err
		}
	}
	_, err := tx.ExecContext(ctx, `UPDATE reservations SET state = $1 WHERE id = $2`, released, reservation)
	return err
}

func bySKU(a, b Line) int { return cmp.Compare(a.SKU, b.SKU) }

// sell handles the event that a parcel has left: its goods are sold.
func (v inventory) sell(ctx context.Context, tx *sql.Tx, m postrider.Typed[Parcel]) error {
	_, err := tx.ExecContext(ctx, `UPDATE reservations SET state = $1 WHERE order_id = $2 AND state = $3`, sold, m.Data.Order, reserved)
	return err
}

// replenish orders 1,000 of each product of which fewer than 100 are left.
func (v inventory) replenish(ctx context.Context) error {
	const scarce = `SELECT sku FROM products WHERE free < 100 ORDER BY sku`
	const buy = `UPDATE products SET bought = bought + 1000, free = free + 1000 WHERE sku = $1 AND free < 100 RETURNING sku`
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(v.cfg.Replenish):
		}
		_, err := v.outbox.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			skus, err := texts(tx.QueryContext(ctx, scarce))
			if err != nil {
				return err
			}
			for _, sku := range skus {
				bought, err := texts(tx.QueryContext(ctx, buy, sku))
				if err != nil {
					return err
				}
				if len(bought) == 0 { // another process was faster
					continue
				}
				m, err := StockReplenished.New(Replenishment{SKU: sku, Quantity: 1000})
				if err != nil {
					return err
				}
				if _, err := v.outbox.Publish(ctx, tx, m); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil && ctx.Err() == nil {
			v.cfg.Logger.Warn("replenish the stock; it is tried again", "error", err)
		}
	}
}

// Product is a product of the catalog. Stock is how many were bought at first.
type Product struct {
	SKU   string `json:"sku"`
	Name  string `json:"name"`
	Price Money  `json:"price"`
	Stock int    `json:"stock"`
}

// addProduct adds a product that does not exist.
func (v inventory) addProduct(ctx context.Context, p Product) error {
	const insert = `INSERT INTO products (sku, name, price, bought, free) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`
	if _, err := v.db.DB.ExecContext(ctx, insert, p.SKU, p.Name, p.Price, p.Stock, p.Stock); err != nil {
		return fmt.Errorf("add product %s: %w", p.SKU, err)
	}
	return nil
}

func (v inventory) handleAdd(w http.ResponseWriter, r *http.Request) {
	var p Product
	if !read(w, r, &p) {
		return
	}
	if p.SKU == "" || p.Price <= 0 || p.Stock < 0 {
		http.Error(w, "a product needs an SKU, a price above 0 and a stock", http.StatusBadRequest)
		return
	}
	answer(w, http.StatusCreated, p, v.addProduct(r.Context(), p))
}

func (v inventory) handleList(w http.ResponseWriter, r *http.Request) {
	rows, err := v.db.DB.QueryContext(r.Context(), `SELECT sku, name, price, free FROM products ORDER BY sku`)
	found, err := collect(rows, err, func(p *Product) []any { return []any{&p.SKU, &p.Name, &p.Price, &p.Stock} })
	answer(w, http.StatusOK, found, err)
}
