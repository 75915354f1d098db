package natsbroker_test

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats-server/v2/server/ats"
	"github.com/nats-io/nats.go"

	"github.com/postrider/postrider/internal/servertest"
)

// serverEnv makes this test binary a NATS server; the arguments are the server's.
const serverEnv = "POSTRIDER_TEST_BE_NATS_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(serverEnv) != "" {
		if err := beServer(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// This goroutine is shared by all servers of the process and must not count as leaked by a test.
	ats.Register()
	os.Exit(m.Run())
}

func beServer(args []string) error {
	opts, err := server.ConfigureOptions(flag.NewFlagSet("nats-server", flag.ExitOnError), args, func() {}, func() {}, func() {})
	if err != nil {
		return err
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	if err := server.Run(s); err != nil {
		return err
	}
	s.WaitForShutdown()
	return nil
}

// natsServer is a real server that can be stopped and restarted at the same address with the same files.
type natsServer interface {
	address() string // host:port
	stop(t testing.TB)
	start(t testing.TB)
}

// embeddedServer runs in this process.
type embeddedServer struct {
	opts   server.Options
	server *server.Server
}

// startEmbedded starts a server on a free port; set changes its options.
func startEmbedded(t testing.TB, set func(*server.Options)) *embeddedServer {
	t.Helper()
	s := &embeddedServer{opts: server.Options{
		Host: "127.0.0.1", Port: servertest.Port(t), JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
	}}
	if set != nil {
		set(&s.opts)
	}
	s.start(t)
	t.Cleanup(func() { s.stop(t) })
	return s
}

func (s *embeddedServer) address() string {
	return net.JoinHostPort(s.opts.Host, strconv.Itoa(s.opts.Port))
}

func (s *embeddedServer) start(t testing.TB) {
	opts := s.opts
	started, err := server.NewServer(&opts)
	if err != nil {
		t.Fatalf("start NATS server: %v", err)
	}
	s.server = started
	started.Start()
	if !started.ReadyForConnections(5 * time.Minute) {
		t.Fatal("NATS server does not get ready")
	}
}

func (s *embeddedServer) stop(testing.TB) {
	s.server.Shutdown()
	s.server.WaitForShutdown()
}

// processServer is a separate process, which is killed to stop it.
type processServer struct {
	port int
	dir  string
	cmd  *exec.Cmd
}

func startProcess(t testing.TB) *processServer {
	t.Helper()
	s := &processServer{port: servertest.Port(t), dir: t.TempDir()}
	s.start(t)
	t.Cleanup(func() { s.stop(t) })
	return s
}

func (s *processServer) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

func (s *processServer) start(t testing.TB) {
	s.cmd = exec.Command(os.Args[0], "-a", "127.0.0.1", "-p", strconv.Itoa(s.port), "-js", "-sd", s.dir,
		"-l", filepath.Join(s.dir, "log"))
	s.cmd.Env = append(os.Environ(), serverEnv+"=1")
	if err := s.cmd.Start(); err != nil {
		t.Fatalf("start NATS server: %v", err)
	}
	awaitServer(t, s.address())
}

func (s *processServer) stop(t testing.TB) {
	if s.cmd == nil {
		return
	}
	if err := s.cmd.Process.Kill(); err != nil {
		t.Errorf("kill NATS server: %v", err)
	}
	_ = s.cmd.Wait() // reports that it was killed
	s.cmd = nil
}

// awaitServer waits until JetStream answers.
func awaitServer(t testing.TB, address string) {
	t.Helper()
	conn, err := nats.Connect(address, nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	deadline := time.Now().Add(5 * time.Minute)
	for {
		_, err := conn.Request("$JS.API.INFO", nil, time.Second)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("NATS server at %s does not get ready: %v", address, err)
		}
		<-time.After(10 * time.Millisecond)
	}
}
