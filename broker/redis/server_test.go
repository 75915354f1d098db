package redisbroker_test

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/postrider/postrider/internal/servertest"
)

// patience bounds every wait for a server.
const patience = 5 * time.Minute

// server is a Redis server for one test.
type server struct {
	port int
	dir  string
	args []string
	cmd  *exec.Cmd
}

// startServer starts a server with an append-only file and extra arguments. Every write is in the file before the client
// gets its answer, so a killed server loses nothing; the server does not wait for the disk.
func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	// Not t.TempDir: a child of a killed server may still be writing there, and leftover files must not fail the test.
	dir, err := os.MkdirTemp("", "postrider-redis-") //nolint:usetesting // as the line above says
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &server{port: servertest.Port(t), dir: dir, args: args}
	s.start(t)
	t.Cleanup(func() { s.stop(t) })
	return s
}

func (s *server) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }
func (s *server) url() string     { return "redis://" + s.address() }

func (s *server) start(t testing.TB) {
	t.Helper()
	bin := servertest.Get(t, servertest.RedisBin)
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s.cmd = exec.Command(bin, append([]string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(s.port), "--dir", s.dir, "--save", "", "--appendonly", "yes", "--appendfsync", "no",
		"--logfile", "",
	}, s.args...)...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		t.Fatalf("start redis-server: %v", err)
	}
	client := s.client(t)
	await(t, "redis-server to be ready", func() bool { return client.Ping(context.Background()).Err() == nil })
}

// stop kills the server.
func (s *server) stop(t testing.TB) {
	if s.cmd == nil {
		return
	}
	if err := s.cmd.Process.Kill(); err != nil {
		t.Errorf("kill redis-server: %v", err)
	}
	_ = s.cmd.Wait() // reports that it was killed
	s.cmd = nil
}

// client returns a plain client of the server.
func (s *server) client(t testing.TB) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: s.address(), Protocol: 2, DialerRetries: 1})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// runningServer returns the URL of the server that all tests share.
func runningServer(t testing.TB) string {
	t.Helper()
	return servertest.Get(t, servertest.Redis)
}

func await(t testing.TB, what string, condition func() bool) {
	t.Helper()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	deadline := time.After(patience)
	for !condition() {
		select {
		case <-poll.C:
		case <-deadline:
			t.Fatalf("waited %s for %s", patience, what)
		}
	}
}

// holds reports whether a request of the Redis protocol has text as an argument.
func holds(request []byte, text string) bool {
	return bytes.Contains(request, []byte("$"+strconv.Itoa(len(text))+"\r\n"+text+"\r\n"))
}
