package rabbitmqbroker_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postrider/postrider/internal/servertest"
)

// server is a RabbitMQ for one test that can be killed, restarted and controlled. It uses TLS on tlsPort, with
// certificates of pki, and takes users from their certificates.
type server struct {
	dir, programs string
	epmd          *exec.Cmd
	vm            *exec.Cmd
	port, tlsPort int
	pki           pki
	env           []string
}

// maxMessageBytes is the server's max_message_size.
const maxMessageBytes = 300_000

// definitions define two users: guest, who may do everything, and shop (password: secret), who may write to the exchange
// permitted with allowed routing keys.
const definitions = `{
  "vhosts": [{"name": "/"}],
  "users": [
    {"name": "guest", "password_hash": "c2FsdDRwMuw4kgNZhm0cEYx1m4NAR6BCdplxDdFbnDjbRIKq", "tags": "administrator"},
    {"name": "shop", "password_hash": "c2FsdL7ekDhtRQzqi3e4IviIcGXk5avxMsL53M/Mf71Mul41", "tags": ""}
  ],
  "permissions": [
    {"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"},
    {"user": "shop", "vhost": "/", "configure": "", "write": "permitted", "read": ""}
  ],
  "topic_permissions": [{"user": "shop", "vhost": "/", "exchange": "permitted", "write": "^allowed", "read": ""}]
}`

func startServer(t testing.TB) *server {
	t.Helper()
	bin, err := filepath.EvalSymlinks(servertest.Get(t, servertest.RabbitMQBin)) // next to Debian's wrapper
	if err != nil {
		t.Fatalf("%s: %v", servertest.RabbitMQBin, err)
	}
	s := &server{
		dir: t.TempDir(), programs: filepath.Dir(bin), port: servertest.Port(t), tlsPort: servertest.Port(t), pki: newPKI(t),
	}
	in := func(name string) string { return filepath.Join(s.dir, name) }
	for name, content := range map[string]string{
		"env.conf":        "",
		"enabled_plugins": "[rabbitmq_auth_mechanism_ssl].",
		"definitions":     definitions,
		"rabbitmq.conf": fmt.Sprintf(`disk_free_limit.absolute = 10MB
load_definitions = %s
max_message_size = %d
listeners.ssl.default = 127.0.0.1:%d
ssl_options.cacertfile = %s
ssl_options.certfile = %s
ssl_options.keyfile = %s
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = false
ssl_cert_login_from = common_name
auth_mechanisms.1 = PLAIN
auth_mechanisms.2 = EXTERNAL
`, in("definitions"), maxMessageBytes, s.tlsPort, s.pki.ca, s.pki.serverCert, s.pki.serverKey),
	} {
		if err := os.WriteFile(in(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	epmdPort := servertest.Port(t)
	s.env = append(os.Environ(),
		"HOME="+s.dir, "ERL_EPMD_PORT="+strconv.Itoa(epmdPort), "RUNNING_UNDER_SYSTEMD=true", "ERL_CRASH_DUMP="+in("crash"),
		"RABBITMQ_NODENAME=private@localhost", "RABBITMQ_NODE_IP_ADDRESS=127.0.0.1", "RABBITMQ_NODE_PORT="+strconv.Itoa(s.port),
		"RABBITMQ_DIST_PORT="+strconv.Itoa(servertest.Port(t)),
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
		"RABBITMQ_CONF_ENV_FILE="+in("env.conf"), "RABBITMQ_CONFIG_FILE="+in("rabbitmq.conf"), "RABBITMQ_CONFIG_FILES="+in("conf.d"),
		"RABBITMQ_ADVANCED_CONFIG_FILE="+in("advanced.config"), "RABBITMQ_ENABLED_PLUGINS_FILE="+in("enabled_plugins"),
		"RABBITMQ_MNESIA_BASE="+in("mnesia"), "RABBITMQ_LOG_BASE="+in("log"), "RABBITMQ_LOGS=-", "RABBITMQ_PID_FILE="+in("pid"),
	)
	s.epmd = s.command("epmd", "-port", strconv.Itoa(epmdPort), "-address", "127.0.0.1")
	if err := s.epmd.Start(); err != nil {
		t.Fatalf("start epmd: %v", err)
	}
	t.Cleanup(func() { end(t, s.epmd) })
	s.start(t)
	t.Cleanup(func() { s.kill(t) })
	return s
}

// command returns a command in the server's environment.
func (s *server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = s.dir, s.env
	return cmd
}

func (s *server) url() string { return fmt.Sprintf("amqp://guest:guest@127.0.0.1:%d/", s.port) }

// start starts the server and waits until clients can connect.
func (s *server) start(t testing.TB) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(s.dir, "server.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s.vm = s.command(filepath.Join(s.programs, "rabbitmq-server"))
	s.vm.Stdout, s.vm.Stderr = log, log
	if err := s.vm.Start(); err != nil {
		t.Fatalf("start RabbitMQ: %v", err)
	}
	for deadline := time.Now().Add(patience); ; {
		conn, err := amqp.Dial(s.url())
		if err == nil {
			_ = conn.Close()
			return
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("RabbitMQ does not get ready: %v\n%s", err, text[max(0, len(text)-4096):])
		}
		<-time.After(50 * time.Millisecond)
	}
}

// kill kills the server.
func (s *server) kill(t testing.TB) { end(t, s.vm) }

func end(t testing.TB, cmd *exec.Cmd) {
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("kill %s: %v", cmd.Path, err)
	}
	_ = cmd.Wait() // reports that it was killed, or that it was already waited for
}

// ctl runs rabbitmqctl.
func (s *server) ctl(t testing.TB, args ...string) {
	t.Helper()
	out, err := s.command(filepath.Join(s.programs, "rabbitmqctl"), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("rabbitmqctl %v: %v\n%s", args, err, out)
	}
}
