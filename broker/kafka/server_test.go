package kafkabroker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/internal/servertest"
)

// sharedServer returns the host:port of the Kafka that all tests share; each test uses its own topics.
func sharedServer(t testing.TB) string {
	t.Helper()
	u, err := url.Parse(servertest.Get(t, servertest.Kafka))
	if err != nil {
		t.Fatalf("POSTRIDER_TEST_KAFKA: %v", err)
	}
	return u.Host
}

// server is a Kafka for one test that can be killed and restarted.
type server struct {
	dir, address string // address of the listener for clients
	java         []string
	cmd          *exec.Cmd
}

const logging = `<Configuration><Appenders><Console name="out"><PatternLayout pattern="%d{ISO8601} %p %c{1} %m%n"/></Console></Appenders>
<Loggers><Root level="WARN"><AppenderRef ref="out"/></Root><Logger name="kafka.server.KafkaRaftServer" level="INFO"/></Loggers></Configuration>`

// startServer starts a Kafka. settings are added to its properties, with PORT replaced by the clients' port. users (name
// and password) can log in with SCRAM.
func startServer(t testing.TB, settings string, users ...[2]string) *server {
	t.Helper()
	s := &server{dir: t.TempDir(), address: freeAddress(t)}
	controller := freeAddress(t)
	s.java = []string{"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.configurationFile=" + s.file("log4j2.xml"),
		"-cp", filepath.Join(servertest.Get(t, servertest.KafkaHome), "libs", "*")}
	if settings == "" {
		settings = "listeners=PLAINTEXT://127.0.0.1:PORT,CONTROLLER://" + controller +
			"\nlistener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
	}
	_, port, err := net.SplitHostPort(s.address)
	if err != nil {
		t.Fatal(err)
	}
	settings = strings.NewReplacer("PORT", port, "CONTROLLER_ADDRESS", controller).Replace(settings)
	for name, content := range map[string]string{"log4j2.xml": logging, "server.properties": settings + `
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
controller.quorum.voters=1@` + controller + `
log.dirs=` + s.file("data") + `
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=1000
broker.heartbeat.interval.ms=100
group.min.session.timeout.ms=100
log.cleaner.dedupe.buffer.size=4194304
log.index.size.max.bytes=1048576
`} {
		if err := os.WriteFile(s.file(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.format(t, users)
	s.start(t)
	t.Cleanup(func() { s.stop(t) })
	return s
}

// cluster is the cluster ID of all servers.
const cluster = "cG9zdHJpZGVyLXRlc3RzIQ"

// format formats the server's storage, with users if there are any; without users, it does so without Kafka's slow tool.
func (s *server) format(t testing.TB, users [][2]string) {
	t.Helper()
	if len(users) == 0 {
		err := errors.Join(os.Mkdir(s.file("data"), 0o700),
			os.WriteFile(s.file("data/meta.properties"), []byte("version=1\nnode.id=1\ncluster.id="+cluster+"\n"), 0o600))
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	args := append(s.java, "kafka.tools.StorageTool", "format", "--cluster-id", cluster, "--config", s.file("server.properties"))
	for _, user := range users {
		for _, mechanism := range []string{"SCRAM-SHA-256", "SCRAM-SHA-512"} {
			args = append(args, "--add-scram", fmt.Sprintf("%s=[name=%s,password=%s]", mechanism, user[0], user[1]))
		}
	}
	if out, err := exec.CommandContext(t.Context(), "java", args...).CombinedOutput(); err != nil {
		t.Fatalf("prepare Kafka's storage: %v\n%s", err, out)
	}
}

func (s *server) file(name string) string { return filepath.Join(s.dir, name) }

// start starts the server and waits until it is ready.
func (s *server) start(t testing.TB) {
	t.Helper()
	logged, err := os.Create(s.file("log"))
	if err != nil {
		t.Fatal(err)
	}
	defer logged.Close()
	s.cmd = exec.Command("java", append(s.java, "kafka.Kafka", s.file("server.properties"))...)
	s.cmd.Stdout, s.cmd.Stderr = logged, logged
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatalf("start Kafka: %v", err)
	}
	s.await(t, func() bool { return bytes.Contains(s.log(), []byte("Kafka Server started")) })
}

func (s *server) log() []byte {
	text, _ := os.ReadFile(s.file("log")) // empty if it cannot be read yet
	return text
}

func (s *server) await(t testing.TB, ready func() bool) {
	t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(5 * time.Minute); !ready(); <-look.C {
		if time.Now().After(deadline) {
			t.Fatalf("Kafka does not get ready:\n%s", s.log())
		}
	}
}

// stop kills the server.
func (s *server) stop(t testing.TB) {
	if s.cmd == nil {
		return
	}
	if err := s.cmd.Process.Kill(); err != nil {
		t.Errorf("kill Kafka: %v", err)
	}
	_ = s.cmd.Wait() // reports that it was killed
	s.cmd = nil
}

func freeAddress(t testing.TB) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(servertest.Port(t)))
}

// plainClient returns a franz-go client without our options.
func plainClient(t testing.TB, address string, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(address), kgo.MetadataMinAge(50 * time.Millisecond)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// by returns a context with a deadline that is long enough for one operation on a busy machine.
func by(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}
