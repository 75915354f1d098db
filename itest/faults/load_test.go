package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/itest/crash"
	"github.com/postrider/postrider/outbox"
)

// accounts is the number of keys.
const accounts = 100

// loadSQL creates the tables of the load and of the effects. Statements are separated by semicolons and valid on both
// servers. %[1]s is the type of an auto-increment column, %[2]s the type and default of the server's time.
const loadSQL = `
create table accounts (id int primary key, counter bigint not null);
create table totals (id int primary key, total bigint not null);
create table ledger (id varchar(64) primary key, account int not null, counter bigint not null, transaction bigint not null);
create table effects (n %[1]s primary key, consumer varchar(20) not null, account int not null, counter bigint not null,
	transaction bigint not null, at %[2]s)`

// load publishes the steps of accounts, each in a transaction with its ledger row.
type load[Tx any] struct {
	t       *testing.T
	box     *outbox.Outbox[Tx]
	session func(Tx) session
	topic   string
	// wait is the longest pause between two steps of a publisher.
	wait time.Duration

	gate         sync.RWMutex // held while nothing is published
	mu           sync.Mutex
	random       *rand.Rand
	acknowledged []string // IDs of the steps that their publisher knows to be committed
	uncertain    int      // commits that were looked up
}

func newLoad[Tx any](t *testing.T, store stores[Tx], session func(Tx) session, random *rand.Rand) *load[Tx] {
	t.Helper()
	box, err := outbox.New(store, outbox.Config{Source: "faults"})
	if err != nil {
		t.Fatal(err)
	}
	return &load[Tx]{t: t, box: box, session: session, topic: "accounts", wait: 100 * time.Millisecond,
		random: rand.New(rand.NewPCG(random.Uint64(), 0))}
}

// during publishes from eight goroutines until ctx ends. The returned function waits for them.
func (l *load[Tx]) during(ctx context.Context) (wait func()) {
	var publishers sync.WaitGroup
	for range 8 {
		publishers.Go(func() {
			for ctx.Err() == nil {
				l.gate.RLock()
				l.step(l.pick(accounts))
				l.gate.RUnlock()
				select {
				case <-time.After(time.Duration(l.pick(int(l.wait)))):
				case <-ctx.Done():
				}
			}
		})
	}
	return publishers.Wait
}

// orQuiet makes a fault happen while messages are published, or, every other time, after a pause in publishing: then no
// commits of publishers make the relays' asynchronous commits durable.
func (l *load[Tx]) orQuiet(f fault) fault {
	happened := 0
	return fault{f.name, func() {
		if happened++; happened%2 == 1 {
			l.gate.Lock()
			defer l.gate.Unlock()
			<-time.After(300 * time.Millisecond)
		}
		f.happen()
	}}
}

// publish publishes one step of each of the first n accounts.
func (l *load[Tx]) publish(n int) {
	l.t.Helper()
	for account := range n {
		l.step(account)
	}
}

// steps is how many steps publishers know to be committed.
func (l *load[Tx]) steps() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acknowledged)
}

func (l *load[Tx]) pick(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.random.IntN(n)
}

// step publishes a step of an account and retries until it succeeds, whatever happens to the server.
func (l *load[Tx]) step(account int) {
	id := postrider.NewID()
	for deadline := time.Now().Add(patience); ; {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(l.t.Context()), 15*time.Second)
		err := l.try(ctx, account, id)
		cancel()
		if err == nil || l.isCommitted(account, id, deadline) {
			l.mu.Lock()
			l.acknowledged = append(l.acknowledged, id)
			l.mu.Unlock()
			return
		}
		if time.Now().After(deadline) {
			l.t.Errorf("no step could be published for %s: %v", patience, err)
			return
		}
	}
}

func (l *load[Tx]) try(ctx context.Context, account int, id string) error {
	_, err := l.box.InTx(ctx, func(ctx context.Context, tx Tx) error {
		s, f := l.session(tx), crash.Fact{Account: int64(account), Transaction: int64(l.pick(1 << 53))}
		if err := s.exec(ctx, "update accounts set counter = counter + 1 where id = ?", account); err != nil {
			return err
		}
		if err := s.row(ctx, "select counter from accounts where id = ?", &f.Counter, account); err != nil {
			return err
		}
		if err := s.exec(ctx, "insert into ledger (id, account, counter, transaction) values (?, ?, ?, ?)",
			id, account, f.Counter, f.Transaction); err != nil {
			return err
		}
		payload, err := json.Marshal(f)
		if err != nil {
			return err
		}
		_, err = l.box.Publish(ctx, tx, &postrider.Message{
			ID: id, Topic: l.topic, Type: "step", Key: fmt.Sprint("account/", account), Payload: payload,
		})
		return err
	})
	return err
}

// isCommitted says whether a step whose commit failed is in the ledger. The lock of its account makes it wait for the
// transaction if that is still open.
func (l *load[Tx]) isCommitted(account int, id string, deadline time.Time) bool {
	l.mu.Lock()
	l.uncertain++
	l.mu.Unlock()
	for time.Now().Before(deadline) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(l.t.Context()), 15*time.Second)
		found := 0
		_, err := l.box.InTx(ctx, func(ctx context.Context, tx Tx) error {
			var counter int64
			s := l.session(tx)
			if err := s.row(ctx, "select counter from accounts where id = ? for update", &counter, account); err != nil {
				return err
			}
			return s.row(ctx, "select count(*) from ledger where id = ?", &found, id)
		})
		cancel()
		if err == nil {
			return found > 0
		}
		<-time.After(100 * time.Millisecond) // the server is unavailable
	}
	return false
}
