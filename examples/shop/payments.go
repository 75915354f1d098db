package shop

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/saga"
)

// Nothing in these tables prevents a second charge for an order: the participant's records do.
const (
	accountTable = `CREATE TABLE IF NOT EXISTS accounts (customer TEXT PRIMARY KEY, card TEXT NOT NULL)`
	paymentTable = `CREATE TABLE IF NOT EXISTS payments (
		id TEXT PRIMARY KEY, order_id TEXT NOT NULL, customer TEXT NOT NULL, amount BIGINT NOT NULL, state TEXT NOT NULL)`
	paymentIndex = `CREATE INDEX IF NOT EXISTS payments_by_order ON payments (order_id)`
)

// The states of a payment.
const (
	paymentCaptured = "CAPTURED"
	paymentRefunded = "REFUNDED"
)

// CardLimit is the largest amount that a card is charged with.
const CardLimit Money = 10_000_00

// payments owns accounts and payments.
type payments struct{ *Service }

func openPayments(ctx context.Context, s *Service) error {
	p := payments{s}
	if err := p.createTables(ctx, accountTable, paymentTable, paymentIndex); err != nil {
		return err
	}
	for _, a := range Customers() {
		if err := p.addAccount(ctx, a); err != nil {
			return err
		}
	}
	s.mux.HandleFunc("POST /accounts", p.handleAdd)
	s.mux.HandleFunc("GET /accounts/{customer}", p.handleGet)
	if err := saga.Handle(s.participant, ChargeCard, p.charge, p.refund); err != nil {
		return err
	}
	commands, events, err := s.participate(ctx, PaymentCommands, s.hears([]string{StockEvents}, ParcelEvents)...)
	if err != nil {
		return err
	}
	return p.choreograph(commands, events)
}

// charge does the step ChargeCard.
func (p payments) charge(ctx context.Context, tx *sql.Tx, m postrider.Typed[Charge]) (Receipt, error) {
	payment, err := p.capture(ctx, tx, m.Data)
	if errors.Is(err, errDeclined) {
		return Receipt{}, saga.Refuse("declined", err)
	}
	return Receipt{Payment: payment}, err
}

// refund undoes charge.
func (p payments) refund(ctx context.Context, tx *sql.Tx, _ Charge, did Receipt) error {
	return p.giveBack(ctx, tx, did.Payment)
}

// errDeclined: a card cannot be charged.
var errDeclined = errors.New("declined")

// capture charges the card of a customer.
func (p payments) capture(ctx context.Context, tx *sql.Tx, c Charge) (payment string, err error) {
	var card string
	err = tx.QueryRowContext(ctx, `SELECT card FROM accounts WHERE customer = $1`, c.Customer).Scan(&card)
	switch {
	case err != nil && !errors.Is(err, sql.ErrNoRows):
		return "", err
	case card == "":
		return "", fmt.Errorf("customer %s has no card: %w", c.Customer, errDeclined)
	case c.Amount > CardLimit:
		return "", fmt.Errorf("%s is above the limit of %s: %w", c.Amount, CardLimit, errDeclined)
	}
	payment = postrider.NewID()
	const insert = `INSERT INTO payments (id, order_id, customer, amount, state) VALUES ($1, $2, $3, $4, $5)`
	_, err = tx.ExecContext(ctx, insert, payment, c.Order, c.Customer, c.Amount, paymentCaptured)
	return payment, err
}

// giveBack refunds a payment.
func (p payments) giveBack(ctx context.Context, tx *sql.Tx, payment string) error {
	_, err := tx.ExecContext(ctx, `UPDATE payments SET state = $1 WHERE id = $2`, paymentRefunded, payment)
	return err
}

// Account is the account of a customer; without a card, it cannot be charged.
type Account struct {
	Customer string `json:"customer"`
	Card     string `json:"card"`
}

// addAccount adds an account that does not exist.
func (p payments) addAccount(ctx context.Context, a Account) error {
	const insert = `INSERT INTO accounts (customer, card) VALUES ($1, $2) ON CONFLICT DO NOTHING`
	if _, err := p.db.DB.ExecContext(ctx, insert, a.Customer, a.Card); err != nil {
		return fmt.Errorf("add account %s: %w", a.Customer, err)
	}
	return nil
}

func (p payments) handleAdd(w http.ResponseWriter, r *http.Request) {
	var a Account
	if !read(w, r, &a) {
		return
	}
	if a.Customer == "" {
		http.Error(w, "an account needs a customer", http.StatusBadRequest)
		return
	}
	answer(w, http.StatusCreated, a, p.addAccount(r.Context(), a))
}

func (p payments) handleGet(w http.ResponseWriter, r *http.Request) {
	a := Account{Customer: r.PathValue("customer")}
	err := p.db.DB.QueryRowContext(r.Context(), `SELECT card FROM accounts WHERE customer = $1`, a.Customer).Scan(&a.Card)
	answer(w, http.StatusOK, a, err)
}
