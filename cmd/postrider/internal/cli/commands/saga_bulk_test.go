package commands_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// TestSagaBulk: a bulk retry of what is stuck stops when its first instances fail again; one that is interrupted continues where
// it stopped.
func TestSagaBulk(t *testing.T) {
	t.Parallel()
	t.Run("A32", func(t *testing.T) {
		t.Parallel()
		clitest.OverStores(t, bulkRetry)
	})
}

func bulkRetry(t *testing.T, url string) {
	const n = 500
	const interrupted = 60
	var repaired atomic.Bool
	var taken atomic.Int32
	gate := make(chan struct{})
	s := startParcels(t, url, n, func(parcel) bool {
		if !repaired.Load() {
			panic("not repaired")
		}
		if taken.Add(1) == interrupted {
			<-gate
		}
		return false
	})
	retry := []string{"saga", "bulk", "retry", "--saga", "parcels", "--because", "test", "--by", "ann", "--wait", "3m", "--store", url}
	bulk := func(args ...string) clitest.Result { return clitest.Run(t, slices.Concat(retry, args)...) }
	for bulk("--dry-run").Code != 0 { // until the engine has reported its definition
		time.Sleep(50 * time.Millisecond)
	}
	clitest.Contains(t, bulk("--dry-run").Out, "retry of 500 instances: 500 would be accepted, 0 refused")
	stopped := bulk()
	if stopped.Code != program.ExitNo {
		t.Errorf("exit code %d, want %d", stopped.Code, program.ExitNo)
	}
	clitest.Contains(t, stopped.Out, "0 of 500 done, 11 stuck again, 0 refused, 489 left")
	clitest.Contains(t, stopped.Err, "stopped: 11 instances stuck again, more than --max-failures 10")
	repaired.Store(true)
	running := clitest.Start(t, nil, retry...)
	for taken.Load() < interrupted { // then the engine waits in the middle of the batch of 100
		time.Sleep(10 * time.Millisecond)
	}
	running.End(t)
	close(gate)
	for stuck(t, s) > n-11-100 { // that batch was asked for
		time.Sleep(10 * time.Millisecond)
	}
	clitest.Contains(t, bulk("--json").Out, `"done": 389`, `"left": 0`)
	clitest.Contains(t, bulk().Out, "0 of 0 done")
	if history := clitest.OK(t, "saga", "show", "p-0", "--store", url); strings.Count(history, "operator.retry") != 2 {
		t.Errorf("the history does not have both decisions:\n%s", history)
	}
	clitest.Fails(t, program.ExitUsage, "is not a verb for many instances", "saga", "bulk", "edit", "--saga", "parcels", "--because", "test", "--store", url)
	clitest.Fails(t, program.ExitUsage, "saga", "saga", "bulk", "retry", "--because", "test", "--store", url)
}

// startParcels starts n instances whose only step depends on a condition, and runs their engine until the test ends.
func startParcels(t *testing.T, url string, n int, onlyIf func(parcel) bool) sagaStore {
	t.Helper()
	s := openSagas(t, url)
	box, err := outbox.New[*sql.Tx](s, outbox.Config{Source: "shop"})
	clitest.Must(t, err)
	quiet := slog.New(slog.DiscardHandler)
	e, err := saga.New[*sql.Tx](s, box, saga.Config{Name: "shop", Logger: quiet})
	clitest.Must(t, err)
	parcels, err := saga.Register(e, saga.Definition[parcel]{Name: "parcels", Version: 1, Steps: []saga.Step[parcel]{
		saga.Local[parcel, *sql.Tx]{Name: "pack", NoUndo: true, Do: func(context.Context, *sql.Tx, *parcel) error { return nil }, OnlyIf: onlyIf},
	}})
	clitest.Must(t, err)
	r, err := relay.New(s, relay.Config{Name: "engine", Topics: []string{e.Topic()}, Logger: quiet})
	clitest.Must(t, err)
	clitest.Must(t, e.Relay(r))
	runRelay(t, r)
	_, err = box.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		for i := range n {
			if _, err := parcels.Start(ctx, tx, parcel{}, saga.ID(fmt.Sprint("p-", i))); err != nil {
				return err
			}
		}
		return nil
	})
	clitest.Must(t, err)
	return s
}

// openSagas opens the store of an outbox for transactions of database/sql.
func openSagas(t *testing.T, url string) sagaStore {
	t.Helper()
	o := clitest.OpenOutbox(t, url)
	pg, is := o.Store.(*postgres.Store)
	if !is {
		return o.Transactions.(sagaStore)
	}
	s, err := pg.SQLTx(t.Context(), o.DB)
	clitest.Must(t, err)
	return s
}

// stuck counts the stuck instances.
func stuck(t *testing.T, s sagaStore) int {
	t.Helper()
	found, err := s.ListSagas(t.Context(), store.SagaFilter{Status: []store.SagaStatus{store.SagaStuck}}, "", 1000)
	clitest.Must(t, err)
	return len(found)
}

// runRelay runs a relay until the test ends.
func runRelay(t *testing.T, r *relay.Relay) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		clitest.Must(t, <-done)
	})
}
