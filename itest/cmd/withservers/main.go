// Withservers runs a command, starts the servers and finds the programs that its tests request, and stops the servers
// when the command ends, however it ends. Its exit code is the command's.
//
//	withservers go test ./...
//
// A server is installed and started when the first test requests it (package internal/servertest), and the test waits for
// it. Servers that no test requests are neither installed nor started. For a command that reads the environment instead,
// -with names the servers to start first:
//
//	withservers -with POSTGRES,NATS sh -c 'psql $POSTRIDER_TEST_POSTGRES'
//
// If a variable is already set, it is used as it is and nothing is started or installed for it, so that you can test
// against your own servers:
//
//	POSTRIDER_TEST_POSTGRES       URL of a PostgreSQL superuser; the tests create their own databases there
//	POSTRIDER_TEST_MYSQL          URL of a superuser of MariaDB or MySQL 8, mysql://root@127.0.0.1:3306/; the same
//	POSTRIDER_TEST_NATS           URL of a NATS server with JetStream; the tests create their own streams there
//	POSTRIDER_TEST_REDIS          URL of a Redis server; the tests use their own keys there
//	POSTRIDER_TEST_RABBITMQ       URL of a RabbitMQ server; the tests use their own queues and exchanges there
//	POSTRIDER_TEST_KAFKA          kafka:// and the address of a Kafka broker; the tests create their own topics there
//	POSTRIDER_TEST_KAFKA_HOME     folder of a Kafka installation, its jars in libs
//	POSTRIDER_TEST_LANGUAGES      folder with what the programs in other languages need (make languages)
//	POSTRIDER_TEST_CLIENTS        folder with programs that use the administration (make clients)
//	POSTRIDER_TEST_GRAFANA        folder with Grafana's types of dashboards and the compiler of TypeScript (make grafana)
//	POSTRIDER_TEST_…_BIN          path of a program, for tests that start and kill servers themselves, or that need a
//	                              third-party client: NATS (nats-server), MARIADB (mariadbd), MARIADB_SLAP (mariadb-slap),
//	                              REDIS (redis-server), RABBITMQ (rabbitmq-server), PGBENCH, PGBOUNCER,
//	                              PROMETHEUS, PROMTOOL, ALERTMANAGER (prometheus-alertmanager), CHROMIUM, HELM, KUBECONFORM, PYTHON, NPM
//	POSTRIDER_TEST_AXE            path of axe.min.js of axe-core
//	POSTRIDER_TEST_KEEP           if not empty, the servers' data and logs are kept, and their folder is printed
//
// As root, missing programs are installed with apt-get; otherwise the tests that need them fail and say what to install.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/postrider/postrider/internal/servertest"
)

var ending = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}

func main() {
	with := flag.String("with", "", "comma-separated `names`, such as POSTGRES,NATS_BIN, to put into the command's environment")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: withservers [-with names] command [argument ...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, restore := signal.NotifyContext(context.Background(), ending...)
	code, err := run(ctx, named(*with), flag.Args())
	restore()
	if err != nil {
		fmt.Fprintln(os.Stderr, "withservers:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// named converts a list of short names to variables.
func named(list string) []servertest.Name {
	var names []servertest.Name
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, servertest.Name("POSTRIDER_TEST_"+strings.TrimPrefix(name, "POSTRIDER_TEST_")))
		}
	}
	return names
}

// run returns the exit code of the command, and an error for failures outside it.
func run(ctx context.Context, with []servertest.Name, command []string) (code int, err error) {
	dir, err := os.MkdirTemp(dataFolder(), "postrider-test-*")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, cleanUp(dir)) }()
	if err := os.Chmod(dir, 0o755); err != nil { // PostgreSQL runs as another user and needs access
		return 1, err
	}
	s := newSupply(ctx, dir)
	defer func() { err = errors.Join(err, s.stop()) }()
	if os.Getenv("CC") == "" { // cgo's own variable; the race detector needs a C compiler
		if _, err := s.program("gcc"); err != nil {
			return 1, err
		}
	}
	control, err := s.listen()
	if err != nil {
		return 1, err
	}
	env := []string{servertest.ControlVariable + "=" + control}
	for _, name := range with {
		value, err := s.get(ctx, name)
		if err != nil {
			return 1, err
		}
		env = append(env, string(name)+"="+value)
	}
	return execute(ctx, command, env)
}

// dataFolder is the parent of the folder with the servers' data. It is in memory if there is plenty and TMPDIR is not set: the
// tests create and drop thousands of tables.
func dataFolder() string {
	const memory, plenty = "/dev/shm", 12 << 30
	var fs syscall.Statfs_t
	if os.Getenv("TMPDIR") != "" || syscall.Statfs(memory, &fs) != nil || fs.Bavail*uint64(fs.Bsize) < plenty {
		return ""
	}
	return memory
}

func cleanUp(dir string) error {
	if os.Getenv("POSTRIDER_TEST_KEEP") != "" {
		fmt.Fprintln(os.Stderr, "withservers: data and logs are kept in", dir)
		return nil
	}
	return os.RemoveAll(dir)
}
