package relay_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

func TestStopIsNoFailedAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.publish(b.msg("k"))
		r := b.relay(relay.Config{MaxAttempts: 1})
		entered := make(chan struct{})
		handle(t, r, func(ctx context.Context, _ *postrider.Message) error {
			close(entered)
			<-ctx.Done()
			return ctx.Err()
		})
		done := make(chan error, 1)
		go func() { done <- r.Run(context.Background()) }()
		<-entered
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Stop(ctx); err != context.DeadlineExceeded {
			t.Errorf("Stop: %v", err)
		}
		if err := <-done; err == nil || !strings.Contains(err.Error(), "delivered again") {
			t.Errorf("Run: %v", err)
		}
		st := b.status()
		if st.Dead.N != 0 || st.Failed != 0 || st.Backlog.N != 1 {
			t.Errorf("dead %d failed %d backlog %d, want 0, 0, 1", st.Dead.N, st.Failed, st.Backlog.N)
		}
		for _, p := range st.Partitions {
			if p.Owner != "" {
				t.Errorf("partition %d still held after Stop", p.Partition)
			}
		}
	})
}

// TestLeaseGrantedDuringAStopIsGivenBack: the relay stops while a lease that it requested is being granted. After an orderly
// stop it holds none.
func TestLeaseGrantedDuringAStopIsGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := faulty(t, func(op string, done bool) error {
			if op == "Acquire" && !done {
				time.Sleep(time.Second)
			}
			return nil
		})
		stop := b.start(b.relay(relay.Config{Publisher: &broker{}}))
		pass(500 * time.Millisecond)
		stop()
		for _, p := range b.status().Partitions {
			if p.Owner != "" {
				t.Errorf("partition %d is held for another %s after an orderly stop", p.Partition, p.LeaseLeft)
			}
		}
	})
}

// TestStopIsNoFailedAttemptWhateverTheErrorSays: a stop cancels a call that then fails with an error that does not wrap
// context.Canceled, as errors from across a network do not. It does not use up a message's last attempt.
func TestStopIsNoFailedAttemptWhateverTheErrorSays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.publish(b.msg("k"))
		r := b.relay(relay.Config{MaxAttempts: 1, StopTimeout: time.Second})
		handle(t, r, func(ctx context.Context, _ *postrider.Message) error {
			<-ctx.Done()
			return errors.New("rpc error: code = Canceled desc = context canceled")
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		pass(time.Second)
		cancel()
		if err := <-done; err == nil || !strings.Contains(err.Error(), "delivered again") {
			t.Errorf("Run: %v, want that a call was cut off", err)
		}
		if st := b.status(); st.Dead.N != 0 || st.Failed != 0 || st.Backlog.N != 1 {
			t.Errorf("after the stop: dead %d, failed attempts %d, backlog %d; want 0, 0, 1", st.Dead.N, st.Failed, st.Backlog.N)
		}
	})
}

func TestRunWithAnEndedContextIsNoError(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.relay(relay.Config{Publisher: &broker{}}).Run(ctx); err != nil {
		t.Error(err)
	}
}

// A fetch that is in progress when the process stops may answer after messages in memory were parked, or left to the next
// owner: what it returns must not be parked after the former and overtake the latter.
func TestFetchThatAnswersAfterTheStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var stopping, asked atomic.Bool
		answer, blocked, j := make(chan struct{}), make(chan struct{}), &journal{}
		b := faulty(t, func(op string, done bool) error {
			switch {
			case op == "Fetch" && done && asked.CompareAndSwap(true, false):
				<-answer
			case op == "Settle" && done && stopping.CompareAndSwap(true, false):
				close(answer)
				time.Sleep(time.Millisecond) // for it to be processed
			}
			return nil
		})
		keys := keysIn(0, 2)
		key, other := keys[0], keys[1]
		b.publish(b.msgs(key, key, other, key)...)
		r := b.relay(relay.Config{Concurrency: 2})
		handle(t, r, func(ctx context.Context, m *postrider.Message) error {
			if m.ID == "m001" {
				<-blocked
			}
			return j.take(ctx, m)
		})
		stop := b.start(r)
		pass(time.Second) // the other key's message is delivered
		asked.Store(true)
		b.publish(b.msg(key))
		pass(2 * time.Second)
		if asked.Load() {
			t.Fatal("nothing is fetched")
		}
		stopping.Store(true)
		stopped := make(chan struct{})
		go func() { defer close(stopped); stop() }()
		synctest.Wait()
		close(blocked)
		<-stopped
		next := b.relay(relay.Config{})
		handle(t, next, j.take)
		b.start(next)
		pass(time.Minute)
		want(t, "order", j.of(key), []string{"m001", "m002", "m004", "m005"})
	})
}

// TestStopRecordsWhatWaitsForARepeatedSettlement: a settlement has failed and waits to be repeated when the relay stops, and
// messages of the same partition have been delivered since. The stop records them too.
func TestStopRecordsWhatWaitsForARepeatedSettlement(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failed := make(chan struct{})
		settle := &trap{op: "Settle", spring: func() error { close(failed); return errBoom }}
		b, k := faulty(t, settle.fault), &broker{}
		stop := b.start(b.relay(relay.Config{Publisher: k}))
		pass(time.Second)
		keys := keysIn(0, 2)
		settle.armed.Store(true)
		b.publish(b.msg(keys[0]))
		<-failed
		b.publish(b.msg(keys[1]))
		synctest.Wait()
		if k.len() != 2 {
			t.Fatalf("%d messages delivered before the settlement is repeated, want 2", k.len())
		}
		stop()
		next := b.relay(relay.Config{Publisher: k})
		b.start(next)
		pass(time.Minute)
		want(t, "delivered", k.all, []string{"m001", "m002"})
		b.wantNothingLeft(next)
	})
}

// awayStore does not answer the first access of a relay.
type awayStore struct{ store.Relay }

func (awayStore) Partitions(ctx context.Context) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

// TestStopWhileTheRelayBegins: Stop does not wait for a database that does not answer, nor for a function of Prepare.
func TestStopWhileTheRelayBegins(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]bool{"the database is away": true, "Prepare": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t)
				var s store.Relay = b.store
				if away {
					s = awayStore{s}
				}
				r := b.relayOn(s, relay.Config{Publisher: &broker{}})
				if err := r.Prepare(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }); err != nil {
					t.Fatal(err)
				}
				ctx, end := context.WithCancel(context.Background())
				defer end()
				done, stopped := make(chan error, 1), make(chan error, 1)
				go func() { done <- r.Run(ctx) }()
				synctest.Wait()
				go func() { stopped <- r.Stop(context.Background()) }()
				pass(time.Minute)
				select {
				case err := <-done:
					if stop := <-stopped; err != nil || stop != nil {
						t.Errorf("Run: %v, Stop: %v", err, stop)
					}
				default:
					t.Error("a minute after Stop the relay still begins")
					end()
				}
			})
		})
	}
}
