package faults

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/relay"
)

// fault is a fault of a server while relays and consumers run.
type fault struct {
	name   string
	happen func()
}

// lateLog makes a server write asynchronous commits to disk late, and gives it memory for them.
var lateLog = []string{"wal_writer_delay=10s", "wal_buffers=32MB"}

// TestCrashPostgres: PostgreSQL is restarted without shutdown, or one of its backends is killed, repeatedly, under relays
// that deliver to handlers, to handlers with transactions and to a webhook whose receiver fails often, and a consumer on
// JetStream. A server that writes its log late loses the asynchronous commits since.
func TestCrashPostgres(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string][]string{"server at its defaults": nil, "log written late": lateLog} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPostgresWorld(t, settings...)
			if settings != nil {
				p.writeLate()
			}
			underCrashes(p.world, func(size int32) stores[pgx.Tx] { return p.store(size) }, onPostgres, true, []fault{
				{"the server was restarted at once", p.crash},
				{"a backend was killed", p.killBackend},
			})
		})
	}
}

// underCrashes runs every kind of relay and a consumer, each in two processes or two objects except those of JetStream,
// while faults happen, and checks what arrived. durable says that publishers' commits survive a crash; otherwise messages
// are delivered that the server loses afterwards. A consumer of a queue is correct only if its own commits are durable.
func underCrashes[Tx any](w *world, open func(size int32) stores[Tx], session func(Tx) session, durable bool, faults []fault) {
	plain, hooks := startPairs(w, open, session)
	counted := []string{"plain", "effects", "hooks"}
	if durable {
		broker := startNATS(w.t)
		w.runToNATS(open(10), relay.Config{Name: "to-nats"}, broker.URL)
		runConsumer(w, open(24), "consumer", broker.URL, addEffect("consumer", session))
		counted = append(counted, "to-nats")
	}

	load := newLoad(w.t, open(10), session, w.random)
	during, end := context.WithCancel(w.t.Context())
	defer end()
	ended := load.during(during)
	stopOperator := w.operate()
	defer stopOperator()
	for i, f := range faults {
		faults[i] = load.orQuiet(f)
	}
	happened := w.disturb(loadTime(w.t, 8*time.Second), faults, func(faults int) bool { return faults >= 3 && load.steps() >= 200 })
	end()
	ended()

	facts := w.facts()
	w.t.Logf("%d steps, %d commits were uncertain, %d faults", len(facts), load.uncertain, happened)
	w.awaitEffects("effects", facts)
	w.awaitDelivered(plain, "plain", facts, !durable)
	w.awaitDelivered(hooks, "hooks", facts, !durable)
	if durable {
		w.checkAcknowledged(load.acknowledged)
		w.awaitEffects("consumer", facts)
	}
	all := w.awaitSettled(open(2))
	w.checkCounts(all, len(facts), counted...)
	if got, most := all["plain"].Failed, int64(plain.failures+plain.cut); got > most {
		w.t.Errorf("plain: the status counts %d failed attempts, of %d", got, most)
	}
	if got, most := all["hooks"].Failed, int64(hooks.failures+hooks.cut); got > most {
		w.t.Errorf("hooks: the status counts %d failed attempts, of %d", got, most)
	}
}

// startPairs starts two relays of each kind: with handlers, with handlers in transactions, and two processes with a
// webhook whose receiver fails often.
func startPairs[Tx any](w *world, open func(size int32) stores[Tx], session func(Tx) session) (plain, hooks *recorder) {
	w.t.Helper()
	plain, hooks = newRecorder(), newRecorder()
	hooks.fail(0.15, w.random)
	hooks.work = 5 * time.Millisecond
	url := hooks.serve(w.t)
	for range 2 {
		w.runHandler(open(10), relay.Config{Name: "plain"}, plain)
		runHandlerTx(w, open(20), relay.Config{Name: "effects"}, addEffect("effects", session))
		w.startRelay(webhookRelay("hooks", url))
	}
	return plain, hooks
}

// disturb makes faults happen, each at least once, a few seconds apart, for a time and until enough returns true.
func (w *world) disturb(least time.Duration, faults []fault, enough func(happened int) bool) (happened int) {
	w.t.Helper()
	for began := time.Now(); ; {
		f := faults[happened%len(faults)]
		if happened >= len(faults) {
			f = faults[w.random.IntN(len(faults))]
		}
		<-time.After(w.pause + time.Duration(w.random.Int64N(int64(w.pauses))))
		if time.Since(began) >= least && enough(happened) {
			return happened
		}
		if time.Since(began) >= least+patience {
			w.t.Fatalf("there was not enough load within %s", least+patience)
		}
		w.t.Logf("%s: %s", time.Now().Format("15:04:05.000"), f.name)
		f.happen()
		happened++
	}
}

// operate redrives dead letters until it is stopped.
func (w *world) operate() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var operator sync.WaitGroup
	operator.Go(func() {
		for {
			select {
			case <-time.After(2 * time.Second):
				_ = w.redriveDead(ctx) // the server may be unavailable; it retries
			case <-ctx.Done():
				return
			}
		}
	})
	return sync.OnceFunc(func() {
		cancel()
		operator.Wait()
	})
}

// checkAcknowledged checks the ledger against the publishers' results: every committed step must be there.
func (w *world) checkAcknowledged(ids []string) {
	w.t.Helper()
	var there map[string]bool
	await(w.t, "the ledger can be read", func() string { // the server has crashed: a pool may still have broken connections
		var err error
		if there, err = w.ledger(); err != nil {
			return err.Error()
		}
		return ""
	})
	for _, id := range ids {
		if !there[id] {
			w.t.Errorf("step %s was acknowledged and is not in the ledger: the load itself is wrong", id)
		}
	}
}

// ledger reads the IDs of the steps that are committed.
func (w *world) ledger() (ids map[string]bool, err error) {
	rows, err := w.db.QueryContext(w.t.Context(), "select id from ledger")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	ids = make(map[string]bool)
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids[id] = true
	}
	return ids, rows.Err()
}

// TestCrashMariaDB: mariadbd is killed and restarted under relays and a consumer. A server that writes its log once a
// second loses the commits since, including those of publishers.
func TestCrashMariaDB(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]bool{"server at its defaults": false, "log written late": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Without a binary log, InnoDB shows a commit before it is on disk.
			settings := []string{"--log-bin=binlog", "--binlog-format=ROW"}
			if late {
				settings = []string{"--innodb-flush-log-at-trx-commit=0"}
			}
			m := newMariaWorld(t, settings...)
			underCrashes(m.world, func(size int32) stores[*sql.Tx] { return m.store(int(size)) }, onMySQL, !late, []fault{
				{"the server was killed", m.crash},
			})
		})
	}
}

// TestCrashPostgresBacklog: the server crashes while a webhook that fails every third call receives a backlog and nothing
// else is committed, so that no other commit makes the settlements durable. Nothing is lost, overtaken or stays parked.
func TestCrashPostgresBacklog(t *testing.T) {
	t.Parallel()
	const steps = 30
	p := newPostgresWorld(t, lateLog...)
	p.writeLate()
	load := p.newLoad()
	for range steps {
		load.publish(accounts)
	}
	hooks := newRecorder()
	hooks.fail(0.3, p.random)
	hooks.work = 10 * time.Millisecond
	url := hooks.serve(t)
	p.startRelay(webhookRelay("hooks", url))
	faults := []fault{{"the server was restarted at once", p.crash}, {"a backend was killed", p.killBackend}}
	p.disturb(loadTime(t, 8*time.Second), faults, func(happened int) bool { return happened >= len(faults) })
	stopOperator := p.operate()
	defer stopOperator()
	facts := p.facts()
	p.awaitDelivered(hooks, "hooks", facts, false)
	p.checkCounts(p.awaitSettled(p.store(2)), len(facts), "hooks")
}
