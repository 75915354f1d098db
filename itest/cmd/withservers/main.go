// Withservers starts the servers that the tests need, runs a command with their addresses in its environment, and stops
// them again, whatever becomes of the command. Its exit code is the command's.
//
//	withservers go test ./...
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
// What is missing on this machine is installed with apt-get when this runs as root; otherwise it says what to install.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

var ending = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}

func main() {
	ctx, forget := signal.NotifyContext(context.Background(), ending...)
	code, err := run(ctx, os.Args[1:])
	forget()
	if err != nil {
		fmt.Fprintln(os.Stderr, "withservers:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// run returns the exit code of the command, and an error for what went wrong around it.
func run(ctx context.Context, command []string) (code int, err error) {
	if len(command) == 0 {
		return 2, errors.New("usage: withservers command [argument ...]")
	}
	dir, err := os.MkdirTemp("", "postrider-test-*")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, cleanUp(dir)) }()
	if err := os.Chmod(dir, 0o755); err != nil { // PostgreSQL runs as another user and must get through
		return 1, err
	}
	env := environment{}
	if err := provide(ctx, env); err != nil {
		return 1, err
	}
	stop, err := startServers(ctx, dir, env)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return 1, err
	}
	return execute(ctx, command, env)
}

// environment is what is added to the environment of the command.
type environment map[string]string

func (e environment) get(name string) string {
	if v, ok := e[name]; ok {
		return v
	}
	return os.Getenv(name)
}

func cleanUp(dir string) error {
	if os.Getenv("POSTRIDER_TEST_KEEP") != "" {
		fmt.Fprintln(os.Stderr, "withservers: data and logs are kept in", dir)
		return nil
	}
	return os.RemoveAll(dir)
}
