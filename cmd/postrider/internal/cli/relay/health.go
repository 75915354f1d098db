package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/bounded"
	"github.com/postrider/postrider/config"
)

const (
	// readyTimeout limits a check of relays and stores.
	readyTimeout = 2 * time.Second
	// readyFor is how long the result of a check is used again, so that requests cannot keep the stores busy.
	readyFor = 500 * time.Millisecond
	// healthConnections is how many connections the server has open at most.
	healthConnections = 64
	// healthTimeout limits the reading of a request, and the writing of its answer after a check.
	healthTimeout = 5 * time.Second
	// healthHeaderBytes limits the size of a request.
	healthHeaderBytes = 8 << 10
)

// healthServer serves an address.
type healthServer struct {
	server *http.Server
	served sync.WaitGroup
}

// serve serves /livez and /readyz at one address, and /metrics at the same one or another, until the returned function is called.
// An empty address disables them.
func (p commands) serve(
	ctx context.Context, c *config.Config, units []*unit, metrics http.Handler, logger *slog.Logger,
) (closeAll func(), err error) {
	var servers []*healthServer
	closeAll = func() {
		for _, s := range servers {
			s.close()
		}
	}
	start := func(address, what string, mux *http.ServeMux) error {
		s, err := p.listenAndServe(ctx, address, what, mux, logger)
		if err == nil {
			servers = append(servers, s)
		}
		return err
	}
	health, what := http.NewServeMux(), "/livez and /readyz"
	handleHealth(health, &readiness{process: ctx, check: func() error { return checkReady(ctx, units) }, logger: logger})
	together := c.HTTP.Listen == c.Telemetry.Metrics
	if metrics != nil && together {
		health.Handle("GET /metrics", metrics)
		what = "/livez, /readyz and /metrics"
	}
	if c.HTTP.Listen != "" {
		if err := start(c.HTTP.Listen, what, health); err != nil {
			return closeAll, err
		}
	}
	if metrics == nil || together {
		return closeAll, nil
	}
	only := http.NewServeMux()
	only.Handle("GET /metrics", metrics)
	return closeAll, start(c.Telemetry.Metrics, "/metrics", only)
}

// listenAndServe serves at an address until close.
func (p commands) listenAndServe(ctx context.Context, address, what string, mux *http.ServeMux, logger *slog.Logger) (*healthServer, error) {
	h := &healthServer{}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for %s: %w", what, err)
	}
	h.server = &http.Server{
		Handler:     mux,
		ReadTimeout: healthTimeout, WriteTimeout: readyTimeout + healthTimeout, MaxHeaderBytes: healthHeaderBytes,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug), // anyone who can connect causes these errors
	}
	h.server.SetKeepAlivesEnabled(false)                                                      // no connection is idle after its answer
	h.served.Go(func() { _ = h.server.Serve(bounded.Listener(listener, healthConnections)) }) // returns when closed
	logger.Info("answering "+what, "address", listener.Addr().String())
	if p.Listening != nil {
		p.Listening(listener.Addr())
	}
	return h, nil
}

// handleHealth handles both endpoints. Anyone may ask, so the answers give no reason; the log does.
func handleHealth(mux *http.ServeMux, ready *readiness) {
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if ready.now() {
			fmt.Fprintln(w, "ok")
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, "not ready")
	})
}

// readiness is whether all relays of the process work and their stores answer. Once the process is ending, it is not ready.
type readiness struct {
	process context.Context
	check   func() error
	logger  *slog.Logger

	mu      sync.Mutex
	checked time.Time // zero: never
	ready   bool
}

// now checks, at most once per readyFor; concurrent calls wait for the same check. It logs why a process is no longer ready.
func (r *readiness) now() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.checked.IsZero() || time.Since(r.checked) >= readyFor {
		err := r.check()
		if r.ready && err != nil && r.process.Err() == nil {
			r.logger.Warn("/readyz: not ready", "error", err)
		}
		r.checked, r.ready = time.Now(), err == nil
	}
	return r.ready && r.process.Err() == nil
}

// checkReady says why the process is not ready.
func checkReady(process context.Context, units []*unit) error {
	ctx, cancel := context.WithTimeout(process, readyTimeout)
	defer cancel()
	errs := make([]error, len(units))
	for i, u := range units {
		errs[i] = u.ready(ctx)
	}
	return errors.Join(errs...)
}

// close stops the server and waits for it.
func (h *healthServer) close() {
	_ = h.server.Close()
	h.served.Wait()
}
