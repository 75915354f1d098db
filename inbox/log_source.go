package inbox

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// listEvery is how often the partitions of a log are listed, to find new ones.
const listEvery = 10 * time.Second

// logSource reads a broker's log for a consumer, without a group. The position in each partition of the log is in the consumer's
// database, and the leases of the consumer's relay for parked messages distribute the partitions among the processes: whoever
// holds partition leaseOf(p) reads partition p of the log. Every transaction checks the lease when it commits.
type logSource[Tx any] struct {
	c   *Consumer[Tx]
	log postrider.Log
	// arrived passes on what was read; left is what Receive has not returned yet.
	arrived chan []*postrider.Delivery
	left    []*postrider.Delivery
	// finished is closed when the consumer waits for no transaction of a new message any more. What still runs after StopTimeout has an
	// ended context and cannot commit.
	finished chan struct{}
	changed  chan struct{} // signals a change of the leases
	divided  chan struct{} // signals that the partitions have changed
	ctx      context.Context
	end      context.CancelFunc
	ended    chan struct{} // closed when follow has ended
	running  sync.WaitGroup
	// unreported: the broker did not take the last position that it was told.
	unreported atomic.Bool
	// received: a message arrived. unmatched: it was logged that there are only messages for others.
	received, unmatched atomic.Bool

	mu         sync.Mutex
	partitions int            // leases
	held       map[int]string // tokens by partition
	parts      []postrider.LogPartition
	runs       map[string]*logRun[Tx] // by partition of the log
	failing    map[string]bool        // partitions of the log that have a run and cannot be read
	unlisted   bool                   // the partitions could not be listed when that was tried last
}

var _ postrider.Subscription = (*logSource[any])(nil)

func newLogSource[Tx any](c *Consumer[Tx], log postrider.Log) (*logSource[Tx], error) {
	if c.settler == nil {
		return nil, fmt.Errorf("inbox: consumer %s reads a log, for which the store must implement store.TxSettler", c.cfg.Name)
	}
	s := &logSource[Tx]{
		c: c, log: log, arrived: make(chan []*postrider.Delivery), finished: make(chan struct{}),
		changed: make(chan struct{}, 1), divided: make(chan struct{}, 1), ended: make(chan struct{}),
		held: make(map[int]string), runs: make(map[string]*logRun[Tx]), failing: make(map[string]bool),
	}
	s.ctx, s.end = context.WithCancel(context.Background())
	return s, nil
}

// start lists the partitions once and begins to follow the leases.
func (s *logSource[Tx]) start(ctx context.Context) error {
	bounded, cancel := s.c.storeContext(ctx)
	defer cancel()
	n, err := s.c.store.Partitions(bounded)
	if err != nil {
		return postrider.Unavailable(fmt.Errorf("read the number of partitions: %w", err))
	}
	parts, err := s.log.Partitions(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.partitions, s.parts = n, parts
	s.mu.Unlock()
	s.noteEmpty(parts)
	go func() {
		defer close(s.ended)
		s.follow()
	}()
	return nil
}

// follow keeps a run for each partition of the log whose lease this process holds.
func (s *logSource[Tx]) follow() {
	list := time.NewTicker(listEvery)
	defer list.Stop()
	for {
		s.assign()
		select {
		case <-s.ctx.Done():
			return
		case <-s.changed:
		case <-s.divided:
			s.list()
		case <-list.C:
			s.list()
		}
	}
}

// list notes which partitions the log has, and ends the runs of others.
func (s *logSource[Tx]) list() {
	parts, err := s.log.Partitions(s.ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unlisted = err != nil; err != nil {
		return // it is tried again
	}
	s.parts = parts
	for name, run := range s.runs {
		if !slices.ContainsFunc(parts, func(p postrider.LogPartition) bool { return p.Name == name }) {
			run.abandon()
			s.removeRun(name)
		}
	}
}

// assign starts the runs that are missing. Those whose lease is gone have been ended.
func (s *logSource[Tx]) assign() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.parts {
		lease := store.LeaseRef{Partition: leaseOf(p, s.partitions)}
		if lease.Token = s.held[lease.Partition]; lease.Token == "" || s.ctx.Err() != nil {
			continue
		}
		if run := s.runs[p.Name]; run != nil && run.lease == lease && run.ctx.Err() == nil {
			continue
		}
		run := &logRun[Tx]{src: s, part: p, lease: lease, done: make(chan struct{})}
		run.ctx, run.end = context.WithCancel(s.ctx)
		s.runs[p.Name] = run
		s.running.Go(func() { run.loop(run.follow) })
	}
}

// leaseOf returns the lease under which a partition of a log is read. It depends on nothing that can differ between processes.
func leaseOf(p postrider.LogPartition, partitions int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(p.Topic)) // never fails
	return int((uint64(h.Sum32()) + uint64(p.Number)) % uint64(partitions))
}

// hold notes which leases this process has. The runs of others end, and lose what is in memory.
func (s *logSource[Tx]) hold(tokens map[int]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = tokens
	s.lapsed()
	s.tell()
}

// gain adds leases.
func (s *logSource[Tx]) gain(leases []store.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range leases {
		s.held[leases[i].Partition] = leases[i].Token
	}
	s.lapsed()
	s.tell()
}

// lapsed ends the runs whose lease this process does not have any more. It needs s.mu.
func (s *logSource[Tx]) lapsed() {
	for name, run := range s.runs {
		if s.held[run.lease.Partition] == run.lease.Token && run.ctx.Err() == nil {
			continue
		}
		run.abandon()
		s.removeRun(name)
	}
}

// removeRun removes a run that ends. It needs s.mu.
func (s *logSource[Tx]) removeRun(name string) {
	delete(s.runs, name)
	delete(s.failing, name)
}

// connected reports whether the broker lets this process read a partition; one that reads none asks for the list of them.
func (s *logSource[Tx]) connected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, run := range s.runs {
		if !run.away.Load() {
			return true
		}
	}
	return len(s.runs) == 0 && !s.unlisted
}

// abandon ends a run at once.
func (r *logRun[Tx]) abandon() {
	r.end()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.session != nil {
		r.session.lose()
	}
}

func (s *logSource[Tx]) tell() { signal(s.changed) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// release ends the runs of leases that are about to be released, after their transactions under way.
func (s *logSource[Tx]) release(ctx context.Context, leases []store.LeaseRef) {
	s.mu.Lock()
	var leaving []*logRun[Tx]
	for _, l := range leases {
		if s.held[l.Partition] == l.Token {
			delete(s.held, l.Partition)
		}
		for name, run := range s.runs {
			if run.lease == l {
				leaving = append(leaving, run)
				s.removeRun(name)
			}
		}
	}
	s.mu.Unlock()
	var stopping sync.WaitGroup
	for _, run := range leaving {
		stopping.Go(func() { run.stop(ctx) })
	}
	stopping.Wait()
}

// leave ends all runs.
func (s *logSource[Tx]) leave(ctx context.Context) {
	s.mu.Lock()
	var all []store.LeaseRef
	for p, token := range s.held {
		all = append(all, store.LeaseRef{Partition: p, Token: token})
	}
	s.mu.Unlock()
	s.release(ctx, all)
}

// has reports whether the log had all of some partitions when they were listed, if they were.
func (s *logSource[Tx]) has(parts []postrider.LogPartition) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range parts {
		if s.parts != nil && !slices.ContainsFunc(s.parts, func(now postrider.LogPartition) bool { return now.Name == p.Name }) {
			return false
		}
	}
	return true
}

var errNoPartition = errors.New("the log no longer has this partition")

// state returns the state of one partition of the log.
func (s *logSource[Tx]) state(ctx context.Context, name string) (postrider.LogPartition, error) {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	parts, err := s.log.Partitions(ctx, name)
	if err != nil {
		return postrider.LogPartition{}, err
	}
	for _, p := range parts {
		if p.Name == name {
			return p, nil
		}
	}
	signal(s.divided)
	return postrider.LogPartition{}, postrider.Unavailable(fmt.Errorf("%w: %s", errNoPartition, name))
}

// share is how much one partition may read ahead at once, besides what the consumer has in memory.
func (s *logSource[Tx]) share() (limit, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := max(len(s.runs), 1)
	return min(max(s.c.cfg.MaxInFlight/2/n, 1), readLimit), max(s.c.cfg.MaxInFlightBytes/2/n, 1)
}

// unreadable and readable log when a partition can no longer be read, and when it can again.
func (s *logSource[Tx]) unreadable(partition string, err error) {
	s.mu.Lock()
	known := s.failing[partition]
	s.failing[partition] = true
	s.mu.Unlock()
	if !known {
		s.c.cfg.Logger.Warn("consumer cannot read from the log and keeps trying", "consumer", s.c.cfg.Name, "partition", partition, "error", err)
	}
}

func (s *logSource[Tx]) readable(partition string) {
	s.mu.Lock()
	known := s.failing[partition]
	delete(s.failing, partition)
	s.mu.Unlock()
	if known {
		s.c.cfg.Logger.Info("the log can be read again", "consumer", s.c.cfg.Name, "partition", partition)
	}
}

// Receive implements postrider.Subscription.
func (s *logSource[Tx]) Receive(ctx context.Context, limit int) ([]*postrider.Delivery, error) {
	if len(s.left) == 0 {
		select {
		case s.left = <-s.arrived:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.ctx.Done():
			return nil, postrider.ErrSubscriptionClosed
		}
	}
	n := min(limit, len(s.left))
	out := s.left[:n:n]
	s.left = s.left[n:]
	return out, nil
}

// Close implements postrider.Subscription.
func (s *logSource[Tx]) Close(ctx context.Context) error {
	s.end()
	s.mu.Lock()
	for _, run := range s.runs {
		run.abandon()
	}
	s.mu.Unlock()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		<-s.ended
		s.running.Wait()
	}()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
