package backend

import (
	"context"
	"log/slog"
	"sync"

	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/inspect"
)

// Others are the stores of a configuration but one. Each is opened when it is needed first.
type Others struct {
	stores []*other
	cancel context.CancelFunc
}

type other struct {
	config config.Store
	logger *slog.Logger
	// ctx ends with Close.
	ctx context.Context

	mu     sync.Mutex
	opened *Outbox
	// opening is closed when an attempt to open has ended, with this error; nil without one.
	opening chan struct{}
	err     error
}

// OthersOf returns the stores of a configuration but the selected one.
func OthersOf(c *config.Config, selected config.Store, logger *slog.Logger) *Others {
	ctx, cancel := context.WithCancel(context.Background())
	o := &Others{cancel: cancel}
	for _, s := range c.AllStores() {
		if s.Name != selected.Name && s.URL != selected.URL {
			o.stores = append(o.stores, &other{config: s, logger: logger, ctx: ctx})
		}
	}
	return o
}

// Sources are the stores, to search in.
func (o *Others) Sources() (out []inspect.Source) {
	for _, s := range o.stores {
		out = append(out, inspect.Source{Name: s.config.Name, Open: s.open})
	}
	return out
}

// open opens the store unless it is open. Who asks may wait for less time than it takes; who asks then finds it open.
func (s *other) open(ctx context.Context) (inspect.Store, error) {
	s.mu.Lock()
	if s.opened != nil {
		defer s.mu.Unlock()
		return s.opened, nil
	}
	if s.opening == nil {
		s.opening = make(chan struct{})
		go s.begin(s.opening)
	}
	opening := s.opening
	s.mu.Unlock()
	select {
	case <-opening:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened == nil {
		return nil, s.err
	}
	return s.opened, nil
}

// begin opens the store. Close waits for its end.
func (s *other) begin(opening chan struct{}) {
	b, err := Open(s.ctx, s.config, s.logger)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened, s.err, s.opening = b, err, nil
	close(opening)
}

// Close closes the stores that were opened.
func (o *Others) Close() {
	o.cancel()
	for _, s := range o.stores {
		s.mu.Lock()
		opening := s.opening
		s.mu.Unlock()
		if opening != nil {
			<-opening
		}
		if s.opened != nil {
			s.opened.Close()
		}
	}
}
