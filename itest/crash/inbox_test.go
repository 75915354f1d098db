package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/itest/process"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/postgres"
)

const (
	ledgerAccounts = 20
	ledgerSQL      = `
create table transfers (id text primary key, account int not null, amount bigint not null);
create table entered (n bigserial, id text not null, account int not null, amount bigint not null);
create table balances (account int primary key, balance bigint not null default 0);
insert into balances (account) select generate_series(0, 19)`

	// missingSQL counts transfers that were not entered yet.
	missingSQL = `select count(*) from transfers t where not exists (select 1 from entered e where e.id = t.id)`

	// faultsSQL counts transfers that were never entered, those that were entered more than once or never published, and
	// balances that differ from the sum of what was published.
	faultsSQL = `
select
	(` + missingSQL + `),
	(select count(*) from entered) - (select count(distinct e.id) from entered e join transfers t using (id)),
	(select count(*) from balances b where b.balance <> (select coalesce(sum(amount), 0) from transfers t where t.account = b.account))`
)

// TestConsumersUnderKill: transfers are published while the processes that enter them in a ledger are killed, and paused
// longer than their leases and the broker's wait for a settlement. Every transfer is entered once, and the sums are
// exact.
func TestConsumersUnderKill(t *testing.T) {
	t.Parallel()
	for _, way := range []string{byTx, byID, byIDBatch, byLog, byPartitions, byKafkaLog, byRedisLog, byOtherBase} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			underKill(t, way)
		})
	}
}

func underKill(t *testing.T, way string) {
	w := newWorld(t, shortLease)
	if _, err := w.connect().Exec(t.Context(), ledgerSQL); err != nil {
		t.Fatal(err)
	}
	_, log := logBrokers[way]
	if log {
		w.useLog(way, shortLease)
	}
	if way == byID || way == byIDBatch || log {
		defer w.stopRelay(w.startRelay())
	}
	consumers := make([]*process.Process, 3)
	for i := range consumers {
		consumers[i] = w.startConsumer(way, i)
	}
	over, end := context.WithTimeout(t.Context(), loadTime(t, 5*time.Second))
	defer end()
	loading, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() { w.transfer(loading) })
	}
	kills, pauses, restarts := w.disturb(over, way, consumers)
	stop()
	load.Wait()

	db := w.connect()
	look := func(sql string) (counts [3]int64) {
		if err := db.QueryRow(context.Background(), sql).Scan(&counts[0], &counts[1], &counts[2]); err != nil {
			t.Fatal(err)
		}
		return counts
	}
	w.await("every transfer is entered", func() bool { return look(`select (` + missingSQL + `), 0, 0`)[0] == 0 })
	for _, p := range consumers {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	}
	counts := look(`select (select count(*) from transfers), (select count(*) from entered), 0`)
	t.Logf("%d transfers, %d entered, with %d kills, %d pauses and %d restarts of the broker", counts[0], counts[1], kills, pauses, restarts)
	if faults := look(faultsSQL); faults != [3]int64{} {
		t.Errorf("a promise broke: %d transfers not entered, %d entered too often, %d balances wrong", faults[0], faults[1], faults[2])
	}
	if log {
		w.checkOrder(way, db)
	}
	if counts[0] < 20 || kills < leastKills(way) || pauses == 0 || log && restarts == 0 {
		t.Errorf("%d transfers, %d kills, %d pauses and %d restarts are no load", counts[0], kills, pauses, restarts)
	}
}

// leastKills is how often consumers are killed at least: ten times if they read a log, in the test suite those of JetStream only.
func leastKills(way string) int {
	switch {
	case way == byLog, logBrokers[way].read != nil && inTorture(true, false):
		return 10
	}
	return 3
}

// disturb kills and pauses consumers, and restarts the broker of those that read a log, until ctx ends and each has
// happened often enough.
func (w *world) disturb(over context.Context, way string, consumers []*process.Process) (kills, pauses, restarts int) {
	for step := 0; over.Err() == nil || step < 6 || kills < leastKills(way); step++ {
		<-time.After(time.Duration(200+rand.IntN(500)) * time.Millisecond)
		i := rand.IntN(len(consumers))
		switch {
		case step%6 == 1:
			pauses++
			w.pause(consumers[i])
			continue
		case step%6 == 4 && logBrokers[way].read != nil:
			restarts++
			w.restartBroker(200 * time.Millisecond)
			continue
		}
		kills++
		if err := consumers[i].Kill(); err != nil {
			w.t.Fatal(err)
		}
		consumers[i] = w.startConsumer(way, i)
	}
	return kills, pauses, restarts
}

// checkOrder checks that the transfers of each account were entered in the order of the log.
func (w *world) checkOrder(way string, db *pgx.Conn) {
	w.t.Helper()
	stored := w.storedOrder(way)
	rows, err := db.Query(context.Background(), `select 'account/' || account, array_agg(id order by n) from entered group by account`)
	if err != nil {
		w.t.Fatal(err)
	}
	var key string
	var entered []string
	accounts := 0
	_, err = pgx.ForEachRow(rows, []any{&key, &entered}, func() error {
		accounts++
		if !slices.Equal(entered, stored[key]) {
			w.t.Errorf("a promise broke: %s: the order of %d entries is not that of %d messages in the log", key, len(entered), len(stored[key]))
		}
		return nil
	})
	if err != nil || accounts == 0 {
		w.t.Errorf("a promise broke: order of %d accounts: %v", accounts, err)
	}
}

// startConsumer starts the test binary as a consumer.
func (w *world) startConsumer(way string, i int) *process.Process {
	w.t.Helper()
	p, err := process.Start(w.t.Context(), process.Command{
		Name: "consumer", Path: os.Args[0], Ready: consumerReady, Log: filepath.Join(w.dir, fmt.Sprintf("consumer-%d.log", i)),
		Env: []string{consumerVariable + "=" + way, consumerDSN + "=" + w.dsn, consumerBroker + "=" + w.broker.URL},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = p.Kill()
		if w.t.Failed() {
			w.t.Logf("consumer %d wrote:\n%s", p.PID(), p.Tail())
		}
	})
	return p
}

// pause stops a process for a while.
func (w *world) pause(p *process.Process) {
	w.t.Helper()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		w.t.Fatal(err)
	}
	<-time.After(paused)
	if err := p.Signal(syscall.SIGCONT); err != nil {
		w.t.Fatal(err)
	}
}

// transfer publishes in transactions, rolling some of them back, until ctx ends.
func (w *world) transfer(ctx context.Context) {
	pool, err := newPool(w.t.Context(), w.dsn, 2)
	if err != nil {
		w.t.Error(err)
		return
	}
	defer pool.Close()
	store, err := postgres.New(pool, postgres.Config{})
	if err != nil {
		w.t.Error(err)
		return
	}
	box, err := outbox.New(store, outbox.Config{Source: "crash"})
	if err != nil {
		w.t.Error(err)
		return
	}
	undone, longest := errors.New("undone"), inTorture(10, 100)
	for ctx.Err() == nil {
		_, err := box.InTx(w.t.Context(), func(ctx context.Context, tx pgx.Tx) error {
			for range 1 + rand.IntN(4) {
				if err := publishTransfer(ctx, box, tx); err != nil {
					return err
				}
			}
			if rand.IntN(10) == 0 {
				return undone
			}
			return nil
		})
		if err != nil && !errors.Is(err, undone) {
			w.t.Errorf("publish a transfer: %v", err)
			return
		}
		<-time.After(time.Duration(1+rand.IntN(longest)) * time.Millisecond)
	}
}

func publishTransfer(ctx context.Context, box *outbox.Outbox[pgx.Tx], tx pgx.Tx) error {
	data := transfer{Account: rand.IntN(ledgerAccounts), Amount: int64(1 + rand.IntN(1000))}
	payload, err := json.Marshal(data)
	if err != nil {
		return err
	}
	m := &postrider.Message{ID: postrider.NewID(), Type: "transfer", Key: fmt.Sprint("account/", data.Account), Payload: payload}
	if _, err := tx.Exec(ctx, `insert into transfers (id, account, amount) values ($1, $2, $3)`, m.ID, data.Account, data.Amount); err != nil {
		return err
	}
	_, err = box.Publish(ctx, tx, m)
	return err
}
