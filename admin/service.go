package admin

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/doctor"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/inspect"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// Store is what the Service needs of a store. All stores implement it.
type Store interface {
	inspect.Store
	store.Leases
	store.SagaReader
}

// Config configures New.
type Config struct {
	// Name is the name of the store for people, e.g. "shop".
	Name string
	// Others are further stores in which Causation searches, e.g. those of other services. Show applies to them too.
	Others []inspect.Source
	// Show says what of payloads and headers is shown. Without a rule for a type, nothing is.
	Show []Rule
	// Target is how old the oldest undelivered message of a relay may be; an older one is a problem. Default: DefaultTarget.
	Target time.Duration
	// Checks are checks that Doctor makes in addition to those of the store, e.g. of destinations.
	Checks []doctor.Check
	// Command completes a command line in a fix, e.g. with the flags that name the store; see doctor.Options.
	Command func(line string) string
	// Publish publishes a message in a transaction of its own. Operators' decisions about sagas are messages to their engines: without it,
	// sagas are only shown.
	Publish func(context.Context, *postrider.Message) error
	// Logger is for what cannot be recorded. Default: slog.Default().
	Logger *slog.Logger
	// AuditFailed, unless nil, is called when an entry of the audit cannot be written. Its action was refused, or had failed. Package
	// telemetry has one.
	AuditFailed func(error)
}

// Service is what people may ask and do. Its methods are safe for concurrent use, and check the role of the principal.
type Service struct {
	store Store
	cfg   Config

	mu      sync.Mutex // protects what follows
	history history

	latest   latest
	changes  atomic.Int64 // made through this service
	revoked  revocations
	examined examined
	chains   chains
}

// New returns the service of a store.
func New(s Store, c Config) *Service {
	if c.Target <= 0 {
		c.Target = DefaultTarget
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.AuditFailed != nil {
		s = audited{s, c.AuditFailed}
	}
	return &Service{
		store: s, cfg: c, latest: latest{turn: make(chan struct{}, 1)}, examined: examined{turn: make(chan struct{}, 1)},
		revoked: revocations{turn: make(chan struct{}, 1)},
		chains:  chains{turn: make(chan struct{}, 1), kept: make(map[chainOf]chain)},
	}
}

// Name is the name of the store.
func (s *Service) Name() string { return s.cfg.Name }

func (s *Service) dead() deadletter.Store { return deadletter.New(s.store) }

func (s *Service) held() held.Store { return held.New(s.store) }

// database joins changed records with the leases of the store.
type database struct {
	store.Leases
	store.Records
}

// clean makes a text storable.
func clean(text string) string { return stored.Text(text) }

// Run reads the status regularly until ctx ends, so that rates and the history of ages are known when somebody looks, and runs the
// checks of Doctor each minute.
func (s *Service) Run(ctx context.Context) {
	var checking sync.WaitGroup
	defer checking.Wait()
	checking.Go(func() { s.runChecks(ctx) })
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		if _, err := s.reading(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Logger.Debug("the status cannot be read", "store", s.cfg.Name, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
