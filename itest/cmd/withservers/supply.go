package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/itest/process"
)

// reportEvery is how often a server that is not ready yet is reported.
const reportEvery = 30 * time.Second

// supply starts servers and finds programs on request, each once.
type supply struct {
	ctx    context.Context // ends when the command has ended, or with a signal
	cancel context.CancelFunc
	dir    string
	http   *http.Server

	mu      sync.Mutex
	wanted  map[servertest.Name]*wanted
	running []*process.Server
	work    sync.WaitGroup // what is being provided

	installing sync.Mutex
	updated    bool // apt-get knows the packages
}

// wanted is a requested server or program.
type wanted struct {
	done  chan struct{}
	value string
	err   error
}

func newSupply(ctx context.Context, dir string) *supply {
	s := &supply{dir: dir, wanted: make(map[servertest.Name]*wanted)}
	s.ctx, s.cancel = context.WithCancel(ctx)
	return s
}

// listen serves the value of NAME at GET /NAME on a free loopback port, and returns its URL.
func (s *supply) listen() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s.http = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		value, err := s.get(r.Context(), servertest.Name(strings.TrimPrefix(r.URL.Path, "/")))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = fmt.Fprintln(w, value) // the client may be gone
	})}
	s.work.Go(func() { _ = s.http.Serve(l) }) // until stop closes it
	return "http://" + l.Addr().String(), nil
}

// get returns the value of a name and waits for it until ctx ends.
func (s *supply) get(ctx context.Context, name servertest.Name) (string, error) {
	if value := os.Getenv(string(name)); value != "" {
		return value, nil
	}
	s.mu.Lock()
	w := s.wanted[name]
	if w == nil {
		w = &wanted{done: make(chan struct{})}
		s.wanted[name] = w
		s.work.Go(func() {
			defer close(w.done)
			w.value, w.err = s.provide(name)
		})
	}
	s.mu.Unlock()
	select {
	case <-w.done:
		return w.value, w.err
	case <-ctx.Done():
		return "", fmt.Errorf("%s is not ready: %w", name, context.Cause(ctx))
	}
}

// keep registers a server, so that stop stops it.
func (s *supply) keep(server *process.Server, err error) (string, error) {
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = append(s.running, server)
	return server.URL, nil
}

// report prints to standard error that a server is being started, until the returned function prints the result.
func (s *supply) report(name servertest.Name) func(value string, err error) {
	began, over := time.Now(), make(chan struct{})
	say := func(text string) {
		fmt.Fprintf(os.Stderr, "withservers: %s %s\n", text, time.Since(began).Round(time.Second/10))
	}
	var reporter sync.WaitGroup
	reporter.Go(func() {
		tick := time.NewTicker(reportEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				say(fmt.Sprintf("%s is still being started, for", name))
			case <-over:
				return
			}
		}
	})
	return func(value string, err error) {
		close(over)
		reporter.Wait()
		if err != nil {
			say(fmt.Sprintf("%s failed after", name))
			return
		}
		say(fmt.Sprintf("%s=%s after", name, value))
	}
}

// stop cancels servers that are being started and stops those that run.
func (s *supply) stop() error {
	s.cancel()
	var errs []error
	if s.http != nil {
		errs = append(errs, s.http.Close())
	}
	s.work.Wait()
	failed := make([]error, len(s.running))
	var all sync.WaitGroup
	for i, server := range s.running {
		all.Go(func() { failed[i] = server.Stop() })
	}
	all.Wait()
	return errors.Join(append(errs, failed...)...)
}
