package saga

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// counting counts the calls of a store, by name.
type counting struct {
	*memory.Store
	mu    sync.Mutex
	calls map[string]int
	// refuse, if set, says that a change cannot be saved.
	refuse func(c store.SagaChange) error
}

func (c *counting) called(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[name]++
}

func (c *counting) LoadSagas(ctx context.Context, tx *memory.Tx, runs []string) ([]store.SagaInstance, error) {
	c.called("load")
	return c.Store.LoadSagas(ctx, tx, runs)
}

func (c *counting) SaveSagas(ctx context.Context, tx *memory.Tx, changes []store.SagaChange) error {
	c.called("save")
	for _, change := range changes {
		if c.refuse == nil {
			break
		}
		if err := c.refuse(change); err != nil {
			return err
		}
	}
	return c.Store.SaveSagas(ctx, tx, changes)
}

func (c *counting) Insert(ctx context.Context, tx *memory.Tx, msgs []*postrider.Message) error {
	c.called("publish")
	return c.Store.Insert(ctx, tx, msgs)
}

func (c *counting) LockSagaRecords(ctx context.Context, tx *memory.Tx, participant string, steps []store.SagaStep) ([]store.SagaRecord, time.Time, error) {
	c.called("lock")
	return c.Store.LockSagaRecords(ctx, tx, participant, steps)
}

func (c *counting) SaveSagaRecords(ctx context.Context, tx *memory.Tx, participant string, records []store.SagaRecord) error {
	c.called("record")
	return c.Store.SaveSagaRecords(ctx, tx, participant, records)
}

func (c *counting) CloseSagaRuns(ctx context.Context, tx *memory.Tx, participant string, runs []string) error {
	c.called("close")
	return c.Store.CloseSagaRuns(ctx, tx, participant, runs)
}

// many is a shop in whose only partition many instances run at a time.
type many struct {
	*counting
	t      *testing.T
	engine *Engine[*memory.Tx]
	stock  *Participant[*memory.Tx]
	topics []string // of the participant
	orders *Saga[*memory.Tx, keyed]
}

const orders = 20

// startMany starts instances of a saga of two requests.
func startMany(t *testing.T) *many {
	c := &counting{Store: memory.New(memory.Config{Partitions: 1}), calls: make(map[string]int)}
	box, err := outbox.New[*memory.Tx](c, outbox.Config{Source: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	e, err := New[*memory.Tx](c, box, Config{Name: "shop", Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewParticipant[*memory.Tx](c, box, ParticipantConfig{Name: "stock"})
	if err != nil {
		t.Fatal(err)
	}
	w := &many{counting: c, t: t, engine: e, stock: p}
	var steps []Step[keyed]
	for _, name := range []string{"reserve", "ship"} {
		step := DefineStep[keyed, int]("stock." + name)
		steps = append(steps, Request[keyed, keyed, int]{Name: name, Step: step, Command: func(d keyed) keyed { return d }, Timeout: time.Hour})
		w.topics = append(w.topics, step.Type())
		if err := Handle(p, step, func(context.Context, *memory.Tx, postrider.Typed[keyed]) (int, error) { return 1, nil },
			func(context.Context, *memory.Tx, keyed, int) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if w.orders, err = Register(e, Definition[keyed]{Name: "orders", Version: 1, Steps: steps}); err != nil {
		t.Fatal(err)
	}
	if _, err := box.InTx(t.Context(), func(ctx context.Context, tx *memory.Tx) error {
		for i := range orders {
			if _, err := w.orders.Start(ctx, tx, keyed{}, ID(fmt.Sprint("order-", i))); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	clear(c.calls)
	return w
}

// run runs a relay for the engine and one for the participant, for a time.
func (w *many) run(d time.Duration) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var all sync.WaitGroup
	for name, topics := range map[string][]string{"engine": {w.engine.Topic()}, "stock": w.topics} {
		r, err := relay.New(w.counting.Store, relay.Config{Name: name, Topics: topics, Logger: quiet})
		if err == nil && name == "engine" {
			err = w.engine.Relay(r)
		} else if err == nil {
			err = w.stock.Relay(r)
		}
		if err != nil {
			w.t.Fatal(err)
		}
		all.Go(func() {
			if err := r.Run(ctx); err != nil {
				w.t.Error(err)
			}
		})
	}
	time.Sleep(d)
	cancel()
	all.Wait()
}

// in counts the instances in a status.
func (w *many) in(status Status) (n int) {
	for i := range orders {
		got, err := w.orders.Get(w.t.Context(), fmt.Sprint("order-", i))
		if err != nil {
			w.t.Fatal(err)
		}
		if got.Status == status {
			n++
		}
	}
	return n
}

// TestTransitionsShareStatements: the transitions of many instances, and the steps of their participant, take as many statements as those
// of one.
func TestTransitionsShareStatements(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := startMany(t)
		w.run(time.Minute)
		if n := w.in(Completed); n != orders {
			t.Errorf("%d of %d instances have completed", n, orders)
		}
		// Two transitions and two steps, and the end at the participant. What was published first may come in a batch of its own.
		for name, most := range map[string]int{"load": 4, "save": 4, "lock": 4, "record": 4, "close": 2, "publish": 8} {
			if n := w.calls[name]; n == 0 || n > most {
				t.Errorf("%d instances took %d calls of %s, want 1 to %d; all calls: %v", orders, n, name, most, w.calls)
			}
		}
	})
}

// TestChangeThatCannotBeSaved: of many instances whose changes are saved together, only the one that cannot be saved waits.
func TestChangeThatCannotBeSaved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := startMany(t)
		bad, err := w.ShowSaga(t.Context(), "order-7")
		if err != nil {
			t.Fatal(err)
		}
		w.refuse = func(c store.SagaChange) error {
			if c.Run == bad.Run {
				return errors.New("the disk has a bad block")
			}
			return nil
		}
		w.run(time.Minute)
		if n := w.in(Completed); n != orders-1 {
			t.Errorf("%d of %d instances have completed while one cannot be saved", n, orders-1)
		}
		w.refuse = nil
		w.run(time.Minute)
		if n := w.in(Completed); n != orders {
			t.Errorf("%d of %d instances have completed", n, orders)
		}
	})
}

// TestInvalidMessageIsCounted: that a message cannot be published since it is invalid is not the database's failure, and would recur for
// ever. A timer is still tried again.
func TestInvalidMessageIsCounted(t *testing.T) {
	t.Parallel()
	e := &Engine[*memory.Tx]{cfg: Config{Name: "shop", Logger: quiet}}
	invalid := storeError{fmt.Errorf("publish: %w", (&postrider.Message{}).Validate(postrider.Limits{}))}
	for _, tt := range []struct {
		messageType string
		err         error
		want        postrider.OutcomeKind
	}{
		{typeReply, invalid, postrider.Retried},
		{typeReply, storeError{errors.New("deadlock")}, postrider.Snoozed},
		{typeTimer, invalid, postrider.Snoozed},
	} {
		if got := postrider.OutcomeOf(e.uncounted(&postrider.Message{Type: tt.messageType}, tt.err)).Kind; got != tt.want {
			t.Errorf("%s after %v: %v, want %v", tt.messageType, tt.err, got, tt.want)
		}
	}
}
