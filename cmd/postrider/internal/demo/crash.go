package demo

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// errCrashed is the error that a crashed relay gets from everything outside.
var errCrashed = errors.New("this relay has crashed")

// mortal is a relay that can crash: from one moment to the next, it can no longer reach the database or the broker, and
// its memory is gone. What remains is the same as after kill -9: leases that are not released, messages delivered but not
// settled.
type mortal struct {
	relay   *relay.Relay
	crashed atomic.Bool
	cancel  context.CancelFunc
	ended   chan struct{}
	err     error
}

// start runs a relay on the store.
func start(store store.Relay, cfg relay.Config) (*mortal, error) {
	m := &mortal{ended: make(chan struct{})}
	cfg.PublishInterceptors = append(cfg.PublishInterceptors[:len(cfg.PublishInterceptors):len(cfg.PublishInterceptors)], m.intercept)
	cfg.Logger = slog.New(slog.DiscardHandler) // the screen shows what happens
	var err error
	if m.relay, err = relay.New(&mortalStore{store, m}, cfg); err != nil {
		return nil, err
	}
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(m.ended)
		m.err = m.relay.Run(ctx)
	}()
	return m, nil
}

// crash disconnects the relay.
func (m *mortal) crash() {
	m.crashed.Store(true)
	m.cancel()
}

// stop ends the relay gracefully, within a time limit.
func (m *mortal) stop(within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	err := m.relay.Stop(ctx)
	m.cancel()
	<-m.ended
	if m.crashed.Load() {
		return nil
	}
	return errors.Join(err, m.err)
}

// dead returns errCrashed once the relay has crashed.
func (m *mortal) dead() error {
	if m.crashed.Load() {
		return errCrashed
	}
	return nil
}

// intercept sends nothing after the crash. Messages in flight may have arrived, but their response is lost.
func (m *mortal) intercept(next relay.PublishFunc) relay.PublishFunc {
	return func(ctx context.Context, msgs []*postrider.Message) []error {
		var errs []error
		if m.dead() == nil {
			errs = next(ctx, msgs)
		}
		if m.dead() == nil {
			return errs
		}
		errs = make([]error, len(msgs))
		for i := range errs {
			errs[i] = errCrashed
		}
		return errs
	}
}

// mortalStore is the store as seen by a mortal relay.
type mortalStore struct {
	store.Relay
	m *mortal
}

var _ store.Maintainer = (*mortalStore)(nil)

func (s *mortalStore) Heartbeat(ctx context.Context, name string, owner store.Owner, ttl time.Duration) (store.View, error) {
	if err := s.m.dead(); err != nil {
		return store.View{}, err
	}
	return s.Relay.Heartbeat(ctx, name, owner, ttl)
}

func (s *mortalStore) Acquire(ctx context.Context, name string, owner store.Owner, req store.AcquireRequest) ([]store.Lease, error) {
	if err := s.m.dead(); err != nil {
		return nil, err
	}
	return s.Relay.Acquire(ctx, name, owner, req)
}

func (s *mortalStore) Release(ctx context.Context, name string, leases []store.LeaseRef) error {
	if err := s.m.dead(); err != nil {
		return err
	}
	return s.Relay.Release(ctx, name, leases)
}

func (s *mortalStore) Leave(ctx context.Context, name string, owner store.Owner) error {
	if err := s.m.dead(); err != nil {
		return err
	}
	return s.Relay.Leave(ctx, name, owner)
}

func (s *mortalStore) Fetch(ctx context.Context, name string, req store.FetchRequest) ([]store.Batch, error) {
	if err := s.m.dead(); err != nil {
		return nil, err
	}
	return s.Relay.Fetch(ctx, name, req)
}

func (s *mortalStore) Due(ctx context.Context, name string, req store.DueRequest) (store.DueResult, error) {
	if err := s.m.dead(); err != nil {
		return store.DueResult{}, err
	}
	return s.Relay.Due(ctx, name, req)
}

func (s *mortalStore) Settle(ctx context.Context, name string, settlements []store.Settlement) (store.Settled, error) {
	if err := s.m.dead(); err != nil {
		return store.Settled{}, err
	}
	return s.Relay.Settle(ctx, name, settlements)
}

func (s *mortalStore) Change(ctx context.Context, op store.Operation, f func(store.Writer) error) error {
	if err := s.m.dead(); err != nil {
		return err
	}
	return s.Relay.Change(ctx, op, f)
}

// Maintain implements store.Maintainer for stores that implement it.
func (s *mortalStore) Maintain(ctx context.Context, keep store.Retention) (store.Maintained, error) {
	maintainer, ok := s.Relay.(store.Maintainer)
	if !ok || s.m.dead() != nil {
		return store.Maintained{}, nil
	}
	return maintainer.Maintain(ctx, keep)
}
