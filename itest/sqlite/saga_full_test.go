package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store/sqlite"
)

// TestSagaOnFullDisk: the disk is full while orders are placed, and then while their steps are taken. What could not be
// committed has not happened, and all the rest ends once there is room.
func TestSagaOnFullDisk(t *testing.T) {
	t.Parallel()
	t.Run("A44 full disk", fullDisk)
}

func fullDisk(t *testing.T) {
	t.Parallel()
	const room, more = 40, 12 // pages
	f, db := cloned(t, 0)
	execute(t, db, "CREATE TABLE effects (id TEXT NOT NULL)")
	full := newFullShop(t, f.open(t, limit(t, db, room)))
	started := 0
	for err := error(nil); err == nil; {
		if err = full.order(started); err == nil {
			started++
		} else if !strings.Contains(err.Error(), "full") || started == 0 {
			t.Fatalf("after %d orders: %v, want that the disk is full", started, err)
		}
	}
	tight := newFullShop(t, f.open(t, limit(t, db, more)))
	stop := tight.run()
	<-tight.full
	stop()
	ample := newFullShop(t, db)
	defer ample.run()()
	for i := range started {
		if r, err := ample.orders.Wait(t.Context(), fmt.Sprint(i)); err != nil || r.Status != saga.Completed {
			t.Fatalf("order %d is %s: %v", i, r.Status, err)
		}
	}
	var effects, orders int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*), count(DISTINCT id) FROM effects").Scan(&effects, &orders); err != nil {
		t.Fatal(err)
	}
	if effects != 2*started || orders != started {
		t.Errorf("%d effects of %d orders, want two of each of %d", effects, orders, started)
	}
	if r, err := ample.orders.Get(t.Context(), fmt.Sprint(started)); !errors.Is(err, saga.ErrNotFound) {
		t.Errorf("the order that did not fit is %s (%v)", r.Status, err)
	}
}

// limit is an option that lets the file grow by some pages.
func limit(t *testing.T, db *sql.DB, pages int) string {
	t.Helper()
	var n int
	if err := db.QueryRowContext(t.Context(), "PRAGMA page_count").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("_pragma=max_page_count(%d)", n+pages)
}

// fullShop is an engine with two steps, each of which writes a row.
type fullShop struct {
	t      *testing.T
	box    *outbox.Outbox[*sql.Tx]
	orders *saga.Saga[*sql.Tx, string]
	relays []*relay.Relay
	full   chan struct{} // has an element once a relay has reported that the disk is full
}

// Write looks at what the relays log.
func (s *fullShop) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "the disk or the database is full") {
		select {
		case s.full <- struct{}{}:
		default:
		}
	}
	return len(line), nil
}

func newFullShop(t *testing.T, db *sql.DB) *fullShop {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	shop, own := &fullShop{t: t, full: make(chan struct{}, 1)}, newStore(t, db, sqlite.Config{})
	var err error
	shop.box, err = outbox.New(own, outbox.Config{Source: "shop"})
	must(err)
	logger := slog.New(slog.NewTextHandler(shop, &slog.HandlerOptions{Level: slog.LevelDebug}))
	engine, err := saga.New[*sql.Tx](own, shop.box, saga.Config{Name: "shop", StepTimeout: time.Hour, Logger: logger})
	must(err)
	reserve := saga.DefineStep[string, string]("reserve").WithTopic("steps")
	charge := saga.DefineStep[string, string]("charge").WithTopic("steps")
	same := func(id string) string { return id }
	shop.orders, err = saga.Register(engine, saga.Definition[string]{Name: "orders", Version: 1, Steps: []saga.Step[string]{
		saga.Request[string, string, string]{Name: "reserve", Step: reserve, Command: same},
		saga.Request[string, string, string]{Name: "charge", Step: charge, Command: same},
	}})
	must(err)
	work, err := saga.NewParticipant[*sql.Tx](own, shop.box, saga.ParticipantConfig{Name: "work"})
	must(err)
	do := func(ctx context.Context, tx *sql.Tx, m postrider.Typed[string]) (string, error) {
		_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES (?)", m.Data)
		return m.Data, err
	}
	undo := func(ctx context.Context, tx *sql.Tx, command, _ string) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM effects WHERE id = ?", command)
		return err
	}
	must(saga.Handle(work, reserve, do, undo))
	must(saga.Handle(work, charge, do, undo))
	for topic, register := range map[string]func(*relay.Relay) error{engine.Topic(): engine.Relay, "steps": work.Relay} {
		r, err := relay.New(own, relay.Config{Name: topic, Topics: []string{topic}, Logger: logger, BackoffMax: 50 * time.Millisecond})
		must(err)
		must(register(r))
		shop.relays = append(shop.relays, r)
	}
	return shop
}

// order starts an order, in a transaction of its own.
func (s *fullShop) order(n int) error {
	_, err := s.box.InTx(s.t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := s.orders.Start(ctx, tx, fmt.Sprint(n), saga.ID(fmt.Sprint(n)))
		return err
	})
	return err
}

// run runs the relays until stop is called. How they end on a full disk does not matter.
func (s *fullShop) run() (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var running sync.WaitGroup
	for _, r := range s.relays {
		running.Go(func() { _ = r.Run(ctx) })
	}
	return func() {
		cancel()
		running.Wait()
	}
}
