package clitest

import (
	"context"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider/cmd/postrider/internal/cli"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

// StartNATS starts a JetStream server in the test's process and returns its URL.
func StartNATS(t *testing.T) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
	})
	Must(t, err)
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(Patience) {
		t.Fatal("the NATS server does not answer")
	}
	return s.ClientURL()
}

// Arrivals reads the first n messages of a stream: their keys, in order.
func Arrivals(t *testing.T, url, stream string, n int) []string {
	t.Helper()
	conn, err := nats.Connect(url)
	Must(t, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	Must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	consumer, err := js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{})
	Must(t, err)
	var out []string
	for len(out) < n {
		m, err := consumer.Next(jetstream.FetchContext(ctx))
		if err != nil {
			t.Fatalf("%d of %d messages have arrived: %v", len(out), n, err)
		}
		out = append(out, string(m.Data()))
	}
	return out
}

// Process is the program running in the background.
type Process struct {
	Out, Err Buffer
	signals  chan os.Signal
	Address  chan net.Addr
	code     chan int
}

// Start starts the program in the background.
func Start(t *testing.T, environ []string, args ...string) *Process {
	t.Helper()
	r := &Process{signals: make(chan os.Signal), Address: make(chan net.Addr, 1), code: make(chan int, 1)}
	p := &program.Program{
		Stdout: &r.Out, Stderr: &r.Err, Environ: environ, Signals: r.signals,
		Listening: func(a net.Addr) { r.Address <- a },
		Exit:      func(int) { t.Error("ended at once") },
	}
	go func() { r.code <- cli.Run(context.WithoutCancel(t.Context()), p, args) }()
	return r
}

// Works fails the test if the program has ended.
func (r *Process) Works(t *testing.T) {
	t.Helper()
	select {
	case code := <-r.code:
		t.Fatalf("ended with %d:\n%s", code, r.Err.String())
	default:
	}
}

// End sends SIGTERM and returns the exit code.
func (r *Process) End(t *testing.T) int {
	t.Helper()
	select {
	case r.signals <- syscall.SIGTERM:
	case code := <-r.code:
		t.Fatalf("ended before the signal with %d:\n%s", code, r.Err.String())
	}
	select {
	case code := <-r.code:
		return code
	case <-time.After(Patience):
		t.Fatalf("does not end:\n%s", r.Err.String())
		return -1
	}
}
