package resilience

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxName is the longest name of an operation, maxOperations how many a set has.
	maxName       = 64
	maxOperations = 1000
	// otherName is the operation of names that are not valid or too many.
	otherName = "_other"
)

// Set holds the operations of a process. It is safe for concurrent use.
type Set struct {
	cfg      Config
	disabled atomic.Bool
	log      *logLimit
	pending  sync.WaitGroup

	operations sync.Map // of *Operation, by name
	mu         sync.Mutex
	count      int
	warned     bool
}

// New returns a set. Errors: all errors of the configuration, joined.
func New(c Config) (*Set, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("resilience: %w", err)
	}
	if c.MaxInstances == 0 {
		c.MaxInstances = 100
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	s := &Set{cfg: c, log: newLogLimit(c.Logger)}
	s.disabled.Store(c.Disabled)
	return s, nil
}

// Disable switches all policies of the set off, or on again. Calls in progress end as they began.
func (s *Set) Disable(off bool) {
	if s.disabled.Swap(off) != off {
		s.cfg.Logger.Warn("resilience policies were switched", "disabled", off)
	}
}

// Operation returns the operation of a name: always the same one. A name has 1 to 64 bytes of a-z, 0-9, '.', '-' and '_', and a set
// has up to 1,000. Beyond these limits, as with a name made of data, the operation is "_other", and the log says so once.
func (s *Set) Operation(name string) *Operation {
	if o, ok := s.operations.Load(name); ok {
		return o.(*Operation) //nolint:forcetypeassert // nothing else is stored
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if name != otherName && (!validName(name) || s.count >= maxOperations) {
		if !s.warned {
			s.warned = true
			s.cfg.Logger.Warn("name of an operation is not valid, or there are too many; it counts as "+otherName, "operation", name, "operations", s.count)
		}
		name = otherName
	}
	if o, ok := s.operations.Load(name); ok {
		return o.(*Operation) //nolint:forcetypeassert // nothing else is stored
	}
	o := &Operation{set: s, name: name}
	s.operations.Store(name, o)
	s.count++
	return o
}

func validName(name string) bool {
	other := strings.TrimLeft(name, "abcdefghijklmnopqrstuvwxyz0123456789.-_")
	return name != "" && len(name) <= maxName && other == ""
}

// State is the state of an operation, or of an instance of it.
type State struct {
	Operation, Instance string
	Policy              Policy
	// Breaker has been in its state since Since, and Cause says why it is not closed. RetryIn is how long it stays open.
	Breaker BreakerState
	Since   time.Time
	Cause   error
	RetryIn time.Duration
	// Calls are in the breaker's window, of which Failures have failed.
	Calls, Failures int
	// InUse counts calls in progress, Abandoned functions that still run after their timeout.
	InUse, Abandoned int
}

// Operations returns the states of all operations that were used, and of their instances, by name.
func (s *Set) Operations() (out []State) {
	for _, o := range s.operations.Range {
		o := o.(*Operation) //nolint:forcetypeassert // nothing else is stored
		out = append(out, o.State())
		for _, in := range o.used() {
			out = append(out, in.State())
		}
	}
	slices.SortFunc(out, func(a, b State) int {
		return strings.Compare(a.Operation+"\x00"+a.Instance, b.Operation+"\x00"+b.Instance)
	})
	return out
}

// Close waits for the calls of Go.
func (s *Set) Close() { s.pending.Wait() }
