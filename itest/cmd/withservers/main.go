// Withservers runs a command, starts the servers and finds the programs that its tests ask for, and stops them again,
// whatever becomes of the command. Its exit code is the command's.
//
//	withservers go test ./...
//
// A server is installed and started when the first test asks for it (package internal/servertest), and the test waits for
// it. What no test asks for is neither installed nor started. For a command that reads the environment instead, -with names
// what to start first:
//
//	withservers -with POSTGRES,NATS sh -c 'psql $POSTRIDER_TEST_POSTGRES'
//
// A variable that is set already is left alone and nothing is started or installed for it, so that one can test against
// servers of one's own:
//
//	POSTRIDER_TEST_POSTGRES       URL of a PostgreSQL superuser; the tests create databases of their own there
//	POSTRIDER_TEST_MYSQL          URL of a superuser of MariaDB or MySQL 8, mysql://root@127.0.0.1:3306/; the same
//	POSTRIDER_TEST_NATS           URL of a NATS server with JetStream; the tests create streams of their own there
//	POSTRIDER_TEST_REDIS          URL of a Redis server; the tests use keys of their own there
//	POSTRIDER_TEST_RABBITMQ       URL of a RabbitMQ server; the tests use queues and exchanges of their own there
//	POSTRIDER_TEST_KAFKA          kafka:// and the address of a Kafka broker; the tests create topics of their own there
//	POSTRIDER_TEST_KAFKA_HOME     folder of a Kafka, its jars in libs
//	POSTRIDER_TEST_…_BIN          path of a program, for tests that start and kill servers themselves, or that need a client
//	                              that is not ours: NATS (nats-server), MARIADB (mariadbd), MARIADB_SLAP (mariadb-slap),
//	                              REDIS (redis-server), RABBITMQ (rabbitmq-server), PGBENCH, PGBOUNCER
//	POSTRIDER_TEST_KEEP           if not empty, the servers' data and logs are kept, and their folder is named
//
// What is missing on this machine is installed with apt-get when this runs as root; otherwise the tests that need it fail
// and say what to install.
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
	ctx, forget := signal.NotifyContext(context.Background(), ending...)
	code, err := run(ctx, named(*with), flag.Args())
	forget()
	if err != nil {
		fmt.Fprintln(os.Stderr, "withservers:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// named are the variables of a list of short names.
func named(list string) []servertest.Name {
	var names []servertest.Name
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, servertest.Name("POSTRIDER_TEST_"+strings.TrimPrefix(name, "POSTRIDER_TEST_")))
		}
	}
	return names
}

// run returns the exit code of the command, and an error for what went wrong around it.
func run(ctx context.Context, with []servertest.Name, command []string) (code int, err error) {
	dir, err := os.MkdirTemp("", "postrider-test-*")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, cleanUp(dir)) }()
	if err := os.Chmod(dir, 0o755); err != nil { // PostgreSQL runs as another user and must get through
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

func cleanUp(dir string) error {
	if os.Getenv("POSTRIDER_TEST_KEEP") != "" {
		fmt.Fprintln(os.Stderr, "withservers: data and logs are kept in", dir)
		return nil
	}
	return os.RemoveAll(dir)
}
