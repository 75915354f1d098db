package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// silentStore is a store whose connections die without a word: calls of an operation get no answer, until their context ends.
type silentStore struct {
	*memory.Store
	op string

	mu    sync.Mutex
	calls int // how many get no answer
}

func (s *silentStore) answers(ctx context.Context, op string) error {
	s.mu.Lock()
	silent := op == s.op && s.calls > 0
	if silent {
		s.calls--
	}
	s.mu.Unlock()
	if !silent {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *silentStore) Begin(ctx context.Context) (*memory.Tx, error) {
	if err := s.answers(ctx, "Begin"); err != nil {
		return nil, err
	}
	return s.Store.Begin(ctx)
}

func (s *silentStore) Claim(ctx context.Context, tx *memory.Tx, name string, msgs []store.ClaimRequest) ([]store.ClaimResult, error) {
	if err := s.answers(ctx, "Claim"); err != nil {
		return nil, err
	}
	return s.Store.Claim(ctx, tx, name, msgs)
}

func (s *silentStore) Savepoint(ctx context.Context, tx *memory.Tx, f func(context.Context, *memory.Tx) error) error {
	if err := s.answers(ctx, "Savepoint"); err != nil {
		return err
	}
	return s.Store.Savepoint(ctx, tx, f)
}

func (s *silentStore) Version(ctx context.Context, tx *memory.Tx, name, key string) (int64, error) {
	if err := s.answers(ctx, "Version"); err != nil {
		return 0, err
	}
	return s.Store.Version(ctx, tx, name, key)
}

func (s *silentStore) Park(ctx context.Context, tx *memory.Tx, name string, failed []store.ParkRequest) error {
	if err := s.answers(ctx, "Park"); err != nil {
		return err
	}
	return s.Store.Park(ctx, tx, name, failed)
}

func (s *silentStore) Take(ctx context.Context, tx *memory.Tx, name string, m *postrider.Message) (store.TakeResult, error) {
	if err := s.answers(ctx, "Take"); err != nil {
		return store.TakeResult{}, err
	}
	return s.Store.Take(ctx, tx, name, m)
}

func (s *silentStore) MovePosition(ctx context.Context, tx *memory.Tx, name string, p store.LogPosition) error {
	if err := s.answers(ctx, "MovePosition"); err != nil {
		return err
	}
	return s.Store.MovePosition(ctx, tx, name, p)
}

func (s *silentStore) Commit(ctx context.Context, tx *memory.Tx) error {
	if err := s.answers(ctx, "Commit"); err != nil {
		return err
	}
	return s.Store.Commit(ctx, tx)
}

func (s *silentStore) CommitSettled(ctx context.Context, tx *memory.Tx, name string, st store.Settlement) ([]string, error) {
	if err := s.answers(ctx, "CommitSettled"); err != nil {
		return nil, errors.Join(err, s.Rollback(ctx, tx)) // whatever it returns, the transaction has ended
	}
	return s.Store.CommitSettled(ctx, tx, name, st)
}

// TestDatabaseThatDoesNotAnswerIsAskedAgain: connections die without a word, in each call of a transaction and for each worker. Everything
// is applied once the lease that the calls could have had is over. No attempt counts.
func TestDatabaseThatDoesNotAnswerIsAskedAgain(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"Begin", "Claim", "Savepoint", "Version", "Park", "Take", "MovePosition", "Commit", "CommitSettled"} {
		for _, asLog := range []bool{false, true} {
			for _, batch := range []int{1, 4} {
				t.Run(fmt.Sprintf("%s, as a log %v, batches of %d", op, asLog, batch), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { noAnswer(t, op, asLog, batch) })
				})
			}
		}
	}
}

func noAnswer(t *testing.T, op string, asLog bool, batch int) {
	const workers, messages = 2, 20
	s, b := &silentStore{Store: memory.New(memory.Config{}), op: op}, newBroker(t)
	cfg := inbox.ConsumerConfig{Concurrency: workers, RetryConcurrency: workers, Batch: batch, Versions: &inbox.VersionGuard{}}
	handler := func(ctx context.Context, _ *memory.Tx, m *postrider.Message) error {
		time.Sleep(20 * time.Second) // longer than the store may take
		if m.Attempt == 1 && m.ID == "fails" {
			return errors.New("not yet")
		}
		return ctx.Err()
	}
	source := memorybroker.SubscriberConfig{Topics: []string{"t"}, Partitions: 1}
	if !asLog {
		source.Group = "view"
	}
	c, log := run(t, s, b, source, cfg, handler)
	time.Sleep(time.Minute)
	s.mu.Lock()
	s.calls = workers
	s.mu.Unlock()
	publish := []*postrider.Message{{ID: "fails", Key: "fails"}}
	for i := range messages - 1 {
		publish = append(publish, &postrider.Message{ID: fmt.Sprint(i), Key: fmt.Sprint(i)})
	}
	for _, m := range publish {
		m.Type, m.Topic, m.Source, m.Time, m.AggregateVersion = "t", "t", "s", time.Now(), 1
	}
	for _, err := range b.Publish(t.Context(), publish) {
		if err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Hour)
	if s := c.Stats(); s.Applied != messages || s.Failed != 1 || s.Dead != 0 {
		t.Errorf("%+v; want all applied, and no other failure than that of the handler\n%s", s, log)
	}
	positions, err := s.LogPositions(t.Context(), "view")
	if err != nil || asLog && (len(positions) != 1 || positions[0].Offset < messages-1) {
		t.Errorf("positions %+v, %v; want that after everything", positions, err)
	}
}

// sqlStore is a store over database/sql, where nothing but the context of Begin ends a Rollback that gets no answer.
type sqlStore struct {
	*memory.Store
	silent atomic.Bool // the next rollback gets no answer

	mu    sync.Mutex
	begun map[*memory.Tx]context.Context
}

func (s *sqlStore) Begin(ctx context.Context) (*memory.Tx, error) {
	tx, err := s.Store.Begin(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun[tx] = ctx
	return tx, err
}

func (s *sqlStore) Rollback(ctx context.Context, tx *memory.Tx) error {
	if !s.silent.CompareAndSwap(true, false) {
		return s.Store.Rollback(ctx, tx)
	}
	s.mu.Lock()
	begun := s.begun[tx]
	s.mu.Unlock()
	<-begun.Done()
	return errors.Join(begun.Err(), s.Store.Rollback(ctx, tx))
}

// TestRollbackThatIsNotAnswered: a handler fails whose connection has died meanwhile, on arrival and when its message is tried again. The
// message is tried once more.
func TestRollbackThatIsNotAnswered(t *testing.T) {
	t.Parallel()
	for _, at := range []int{1, 2} {
		t.Run(fmt.Sprint("attempt ", at), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, b, calls := &sqlStore{Store: memory.New(memory.Config{}), begun: make(map[*memory.Tx]context.Context)}, newBroker(t), 0
				c, log := run(t, s, b, memorybroker.SubscriberConfig{Group: "view", Topics: []string{"t"}, Partitions: 1},
					inbox.ConsumerConfig{LocalAttempts: 1}, func(context.Context, *memory.Tx, *postrider.Message) error {
						calls++
						s.silent.Store(calls == at)
						if calls <= at {
							return errors.New("not yet")
						}
						return nil
					})
				for _, err := range b.Publish(t.Context(), []*postrider.Message{{ID: "1", Key: "k", Type: "t", Topic: "t", Source: "s", Time: time.Now()}}) {
					if err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Hour)
				if st := c.Stats(); st.Applied != 1 {
					t.Errorf("%+v after %d calls; want the message applied\n%s", st, calls, log)
				}
			})
		})
	}
}
