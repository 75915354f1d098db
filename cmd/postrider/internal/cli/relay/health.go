package relay

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// readyTimeout limits the response time of /readyz.
const readyTimeout = 2 * time.Second

// healthServer serves /livez and /readyz.
type healthServer struct {
	server *http.Server
	served sync.WaitGroup
}

// serveHealth serves /livez and /readyz on an address until close; an empty address disables it.
func (p commands) serveHealth(ctx context.Context, address string, units []*unit, logger *slog.Logger) (*healthServer, error) {
	h := &healthServer{}
	if address == "" {
		return h, nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for /livez and /readyz: %w", err)
	}
	h.server = &http.Server{
		Handler: healthHandler(ctx, units), ReadHeaderTimeout: readyTimeout,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
	h.served.Go(func() { _ = h.server.Serve(listener) }) // returns when closed
	logger.Info("answering /livez and /readyz", "address", listener.Addr().String())
	if p.Listening != nil {
		p.Listening(listener.Addr())
	}
	return h, nil
}

// healthHandler handles both endpoints; once process has ended, the process is alive but not ready.
func healthHandler(process context.Context, units []*unit) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		var missing []string
		if process.Err() != nil {
			missing = append(missing, "ending")
		}
		for _, u := range units {
			if err := u.ready(ctx); err != nil {
				missing = append(missing, err.Error())
			}
		}
		if len(missing) == 0 {
			fmt.Fprintln(w, "ok")
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		for _, m := range missing {
			fmt.Fprintln(w, m)
		}
	})
	return mux
}

// close stops the server and waits for it.
func (h *healthServer) close() {
	if h.server != nil {
		_ = h.server.Close()
		h.served.Wait()
	}
}
