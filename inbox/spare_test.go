package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

var (
	errNoConnection = errors.New("the connection is gone")
	errConflict     = errors.New("a deadlock")
)

// failingStore is a store whose database ends attempts: handlers call fail, which then does so some times.
type failingStore struct {
	*memory.Store
	way string

	mu     sync.Mutex
	times  int
	broken map[*memory.Tx]bool
}

// fail is a statement of a handler.
func (s *failingStore) fail(tx *memory.Tx) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.times--; s.times < 0 {
		return nil
	}
	switch s.way {
	case "lost connection":
		s.broken[tx] = true
		return errors.New("the statement failed") // without what it failed of
	case "conflict":
		return fmt.Errorf("write: %w", errConflict)
	default:
		s.broken[tx] = true
		return nil
	}
}

func (s *failingStore) ended(tx *memory.Tx) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer delete(s.broken, tx)
	if s.broken[tx] {
		return errNoConnection
	}
	return nil
}

// slow is a commit whose time is over before it returns.
func (s *failingStore) slow(ctx context.Context) {
	if s.way == "slow commit" {
		<-ctx.Done()
	}
}

func (s *failingStore) Conflicted(err error) bool { return errors.Is(err, errConflict) }

func (s *failingStore) Rollback(ctx context.Context, tx *memory.Tx) error {
	return errors.Join(s.ended(tx), s.Store.Rollback(ctx, tx))
}

func (s *failingStore) Commit(ctx context.Context, tx *memory.Tx) error {
	if err := s.ended(tx); err != nil {
		s.slow(ctx)
		return errors.Join(err, s.Store.Rollback(ctx, tx))
	}
	return s.Store.Commit(ctx, tx)
}

func (s *failingStore) CommitSettled(ctx context.Context, tx *memory.Tx, name string, st store.Settlement) ([]string, error) {
	if err := s.ended(tx); err != nil {
		s.slow(ctx)
		return nil, errors.Join(err, s.Store.Rollback(ctx, tx))
	}
	return s.Store.CommitSettled(ctx, tx, name, st)
}

// TestFailuresOfTheDatabaseAreNoAttempts: an attempt that the database ends does not count, of a message that has arrived and of one that
// was parked. With one attempt that is left, the message would be dead. If the database fails each time, it is the message, which
// then must be dead, so that its key goes on.
func TestFailuresOfTheDatabaseAreNoAttempts(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"lost connection", "conflict", "lost at the commit", "slow commit"} {
		for _, asLog := range []bool{false, true} {
			for _, parked := range []bool{false, true} {
				for _, times := range []int{5, 1_000_000} {
					t.Run(fmt.Sprintf("%s, as a log %v, parked %v, %d times", way, asLog, parked, times), func(t *testing.T) {
						t.Parallel()
						synctest.Test(t, func(t *testing.T) { databaseFails(t, way, asLog, parked, times) })
					})
				}
			}
		}
	}
}

func databaseFails(t *testing.T, way string, asLog, parked bool, times int) {
	s := &failingStore{Store: memory.New(memory.Config{}), way: way, times: times, broken: make(map[*memory.Tx]bool)}
	b, calls := newBroker(t), 0
	source := memorybroker.SubscriberConfig{Topics: []string{"t"}, Partitions: 1}
	if !asLog {
		source.Group = "view"
	}
	c, log := run(t, s, b, source, inbox.ConsumerConfig{Batch: 1, MaxAttempts: 1}, func(_ context.Context, tx *memory.Tx, _ *postrider.Message) error {
		if calls++; parked && calls == 1 {
			return postrider.Snooze(time.Minute)
		}
		return s.fail(tx)
	})
	publishKeys(t, b, "k")
	time.Sleep(time.Hour)
	dead, err := deadletter.New(s).CountDead(t.Context(), store.DeadFilter{})
	if err != nil {
		t.Fatal(err)
	}
	want, applied, failed := int64(0), int64(1), int64(0)
	if times > 5 {
		want, applied, failed = 1, 0, 1
	}
	if s := c.Stats(); s.Applied != applied || s.Failed != failed || dead != want {
		t.Errorf("%+v, %d dead; want %d applied, %d failed and %d dead\n%s", s, dead, applied, failed, want, log)
	}
	if parked {
		calls--
	}
	if calls != 6 {
		t.Errorf("the handler had the message %d times, want 6", calls)
	}
}

// TestSlowStatementIsAnAttempt: a driver closes the connection when the time of an attempt ends during a statement. That counts.
func TestSlowStatementIsAnAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &failingStore{Store: memory.New(memory.Config{}), way: "lost connection", times: 1_000, broken: make(map[*memory.Tx]bool)}
		b := newBroker(t)
		c, log := startedOn(t, s, b, memorybroker.SubscriberConfig{}, inbox.ConsumerConfig{MaxAttempts: 1, AttemptTimeout: time.Second},
			func(ctx context.Context, tx *memory.Tx, _ *postrider.Message) error {
				<-ctx.Done()
				return errors.Join(s.fail(tx), ctx.Err())
			})
		publishKeys(t, b, "k")
		time.Sleep(2 * time.Second)
		if s := c.Stats(); s.Dead != 1 || s.Failed != 1 {
			t.Errorf("%+v; want one failed attempt, the only one\n%s", s, log)
		}
	})
}

// slowRollback is a store on which a rollback takes longer than another call may.
type slowRollback struct{ *memory.Store }

func (s slowRollback) Rollback(ctx context.Context, tx *memory.Tx) error {
	time.Sleep(5 * time.Second)
	return s.Store.Rollback(ctx, tx)
}

// TestSlowRollbackOfAnAttempt: an attempt that fails counts, however long it takes to undo it.
func TestSlowRollbackOfAnAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, b := slowRollback{memory.New(memory.Config{})}, newBroker(t)
		c, log := startedOn(t, s, b, memorybroker.SubscriberConfig{},
			inbox.ConsumerConfig{Batch: 1, MaxAttempts: 3, LeaseTTL: 3 * time.Second}, func(context.Context, *memory.Tx, *postrider.Message) error {
				return errors.New("the handler failed")
			})
		publishKeys(t, b, "k")
		time.Sleep(time.Hour)
		dead, err := deadletter.New(s).CountDead(t.Context(), store.DeadFilter{})
		if err != nil || dead != 1 || c.Stats().Failed != 3 {
			t.Errorf("%d dead, %v, after %+v; want 1 after 3 failed attempts\n%s", dead, err, c.Stats(), log)
		}
	})
}
