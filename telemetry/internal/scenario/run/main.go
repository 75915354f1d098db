// Run runs a small system under load, answers Prometheus, and provokes faults, to see dashboards and alerts with data:
//
//	go run ./telemetry/internal/scenario/run -listen 127.0.0.1:9464 "broker down" "message fails"
//
// The faults that it is called with last until it is interrupted; then they are fixed, and it ends with the second interrupt. Without
// any, it lists them.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/telemetry"
	"github.com/postrider/postrider/telemetry/export"
	"github.com/postrider/postrider/telemetry/internal/scenario"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9464", "address of the endpoint for Prometheus")
	flag.Parse()
	p := &process{}
	defer p.end()
	providers, err := export.Open(p.Context(), export.Config{Prometheus: true, Logger: slog.Default()})
	p.check(err)
	t, err := telemetry.New(telemetry.Config{Meter: providers.Meter})
	p.check(err)
	faults := scenario.Start(p, scenario.Config{Telemetry: t, Rest: 200 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}).Faults()
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	server := &http.Server{Addr: *listen, Handler: providers.Handler, ReadHeaderTimeout: 5 * time.Second}
	go func() { p.Error(server.ListenAndServe()) }()
	fmt.Fprintf(os.Stdout, "answering http://%s/metrics\n", *listen)
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stdout, "the faults are:")
		for _, f := range faults {
			fmt.Fprintf(os.Stdout, "  %q: %s\n", f.Name, alertsOf(f))
		}
	}
	chosen := slices.DeleteFunc(faults, func(f scenario.Fault) bool { return !slices.Contains(flag.Args(), f.Name) })
	for _, f := range chosen {
		f.Provoke()
		fmt.Fprintln(os.Stdout, "provoked:", f.Name, alertsOf(f))
	}
	<-interrupts
	for _, f := range chosen {
		if f.Fix != nil {
			f.Fix()
		}
		fmt.Fprintln(os.Stdout, "fixed:", f.Name)
	}
	if len(chosen) > 0 {
		<-interrupts
	}
}

func alertsOf(f scenario.Fault) string {
	var names []string
	for _, a := range f.Alerts {
		names = append(names, a.Name)
	}
	return strings.Join(names, ", ")
}

// process is a scenario.TB.
type process struct {
	mu   sync.Mutex
	ends []func()
}

func (p *process) end() {
	p.mu.Lock()
	ends := p.ends
	p.ends = nil
	p.mu.Unlock()
	for _, f := range slices.Backward(ends) {
		f()
	}
}

func (p *process) check(err error) {
	if err != nil {
		p.Fatal(err)
	}
}

// Helper implements scenario.TB.
func (*process) Helper() {}

// Context implements scenario.TB.
func (*process) Context() context.Context { return context.Background() }

// TempDir implements scenario.TB.
func (p *process) TempDir() string {
	dir, err := os.MkdirTemp("", "postrider-scenario-*")
	p.check(err)
	p.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Cleanup implements scenario.TB.
func (p *process) Cleanup(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ends = append(p.ends, f)
}

// Error implements scenario.TB.
func (*process) Error(args ...any) { log.Println(args...) }

// Fatal implements scenario.TB.
func (p *process) Fatal(args ...any) {
	p.end()
	log.Fatal(args...)
}
