package demo

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
)

const (
	customers = 40
	tills     = 4
	// rollbackEvery: one in this many orders is rolled back after it has published.
	rollbackEvery = 25
	// badEvery: a bad deployment writes one in this many orders without its currency.
	badEvery = 33
	topic    = "orders"
)

// errChangedMind rolls an order back.
var errChangedMind = errors.New("the customer changed their mind")

// shop takes orders: each is a transaction that writes the order, counts the customer's messages, records them in the
// ledger and publishes them.
type shop struct {
	db     *sql.DB
	outbox *outbox.Outbox[*sql.Tx]
	// prefix is the prefix of the table names.
	prefix string
	// questionMarks: parameters are ?, not $1.
	questionMarks bool
	check         *checker

	orders, rolledBack atomic.Int64
	// badDeploy says that the shop runs the bad deployment.
	badDeploy atomic.Bool
}

// The tables of the shop and the ledger, in SQL that every database accepts.
const shopTables = `
CREATE TABLE {p}customers (name VARCHAR(64) PRIMARY KEY, messages BIGINT NOT NULL);
CREATE TABLE {p}orders (id VARCHAR(64) PRIMARY KEY, customer VARCHAR(64) NOT NULL, cents BIGINT NOT NULL);
CREATE TABLE {p}ledger (id VARCHAR(64) PRIMARY KEY, customer VARCHAR(64) NOT NULL, number BIGINT NOT NULL)`

var parameter = regexp.MustCompile(`\$[0-9]`)

// sql fills in the table names, and formats the parameters, which are in order, for the database.
func (s *shop) sql(text string) string {
	text = strings.ReplaceAll(text, "{p}", s.prefix)
	if s.questionMarks {
		text = parameter.ReplaceAllLiteralString(text, "?")
	}
	return text
}

// open creates the tables and the customers.
func (s *shop) open(ctx context.Context) error {
	for statement := range strings.SplitSeq(s.sql(shopTables), ";") {
		if _, err := s.db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("create the shop's tables: %w", err)
		}
	}
	for n := range customers {
		if _, err := s.db.ExecContext(ctx, s.sql(`INSERT INTO {p}customers VALUES ($1, 0)`), customer(n)); err != nil {
			return fmt.Errorf("create the customers: %w", err)
		}
	}
	return nil
}

func customer(n int) string { return fmt.Sprintf("customer/%d", n+1) }

// serve takes orders at several tills until ctx ends, one order per interval at each.
func (s *shop) serve(ctx context.Context, interval time.Duration) error {
	var working sync.WaitGroup
	errs := make([]error, tills)
	for n := range tills {
		working.Go(func() {
			tick := time.NewTicker(interval)
			defer tick.Stop()
			for errs[n] == nil {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					errs[n] = s.order(ctx)
				}
			}
		})
	}
	working.Wait()
	return errors.Join(errs...)
}

// order is one transaction with one to three messages; one in rollbackEvery is rolled back at its end.
func (s *shop) order(ctx context.Context) error {
	name := customer(min(rand.IntN(customers), rand.IntN(customers))) // some customers order more than others
	changed := rand.IntN(rollbackEvery) == 0
	bad := !changed && s.badDeploy.Load() && rand.IntN(badEvery) == 0
	var ids []string
	// An order that has begun is finished: only a transaction whose commit or rollback is certain counts.
	ctx = context.WithoutCancel(ctx)
	_, err := s.outbox.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var err error
		if ids, err = s.write(ctx, tx, name, bad); err == nil && changed {
			err = errChangedMind
		}
		return err
	})
	switch {
	case errors.Is(err, errChangedMind):
		s.rolledBack.Add(1)
		for _, id := range ids {
			s.check.rolledBack(id)
		}
		return nil
	case err != nil:
		return fmt.Errorf("take an order: %w", err)
	}
	s.orders.Add(1)
	return nil
}

// detail is the payload of the shop's messages: what the consumer checks, and typical order data.
type detail struct {
	Customer string `json:"customer"`
	Number   int64  `json:"number"`
	Order    string `json:"order"`
	Cents    int64  `json:"cents"`
}

// write writes an order within its transaction and returns the IDs of its messages.
func (s *shop) write(ctx context.Context, tx *sql.Tx, name string, bad bool) ([]string, error) {
	types := []string{"order.placed", "order.paid", "order.shipped"}[:1+rand.IntN(3)]
	order, cents := postrider.NewID(), 100+rand.Int64N(20_000)
	var last int64
	// The customer's row stays locked until the transaction ends, so that numbers rise in commit order.
	_, err := tx.ExecContext(ctx, s.sql(`UPDATE {p}customers SET messages = messages + $1 WHERE name = $2`), len(types), name)
	if err == nil {
		err = tx.QueryRowContext(ctx, s.sql(`SELECT messages FROM {p}customers WHERE name = $1`), name).Scan(&last)
	}
	if err != nil {
		return nil, fmt.Errorf("count the customer's messages: %w", err)
	}
	if _, err := tx.ExecContext(ctx, s.sql(`INSERT INTO {p}orders VALUES ($1, $2, $3)`), order, name, cents); err != nil {
		return nil, fmt.Errorf("write the order: %w", err)
	}
	msgs, ids := make([]*postrider.Message, len(types)), make([]string, len(types))
	for i, kind := range types {
		number := last - int64(len(types)-1-i)
		payload, err := json.Marshal(detail{name, number, order, cents})
		if err != nil {
			return nil, fmt.Errorf("encode the message: %w", err)
		}
		ids[i] = postrider.NewID()
		msgs[i] = &postrider.Message{ID: ids[i], Type: kind, Topic: topic, Key: name, Payload: payload}
		if bad && i == 0 {
			msgs[i].Headers = map[string]string{badHeader: "yes"}
		}
		if _, err := tx.ExecContext(ctx, s.sql(`INSERT INTO {p}ledger VALUES ($1, $2, $3)`), ids[i], name, number); err != nil {
			return nil, fmt.Errorf("write the ledger: %w", err)
		}
	}
	_, err = s.outbox.Publish(ctx, tx, msgs...)
	return ids, err
}

// committed counts the messages in the ledger by the sum of the customers' counters, so its cost stays constant.
func (s *shop) committed(ctx context.Context) (int64, error) {
	var n int64
	err := s.db.QueryRowContext(ctx, s.sql(`SELECT COALESCE(SUM(messages), 0) FROM {p}customers`)).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count the committed messages: %w", err)
	}
	return n, nil
}

// ledger reads every fact.
func (s *shop) ledger(ctx context.Context) (facts []fact, err error) {
	rows, err := s.db.QueryContext(ctx, s.sql(`SELECT id, customer, number FROM {p}ledger ORDER BY customer, number`))
	if err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var f fact
		if err := rows.Scan(&f.ID, &f.Key, &f.N); err != nil {
			return nil, fmt.Errorf("read the ledger: %w", err)
		}
		facts = append(facts, f)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	return facts, nil
}
