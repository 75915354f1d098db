package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/postrider/postrider/itest/process"
)

// server is one that is started unless its variable is set.
type server struct {
	variable string
	start    func(ctx context.Context, dir string, env environment) (*process.Server, error)
}

var servers = []server{
	{"POSTRIDER_TEST_POSTGRES", func(ctx context.Context, dir string, _ environment) (*process.Server, error) {
		return process.StartPostgres(ctx, dir)
	}},
	{"POSTRIDER_TEST_MYSQL", func(ctx context.Context, dir string, env environment) (*process.Server, error) {
		return process.StartMariaDB(ctx, env.get("POSTRIDER_TEST_MARIADB_BIN"), dir)
	}},
	{"POSTRIDER_TEST_NATS", func(ctx context.Context, dir string, env environment) (*process.Server, error) {
		return process.StartNATS(ctx, env.get("POSTRIDER_TEST_NATS_BIN"), dir, 0)
	}},
	{"POSTRIDER_TEST_REDIS", func(ctx context.Context, dir string, env environment) (*process.Server, error) {
		return process.StartRedis(ctx, env.get("POSTRIDER_TEST_REDIS_BIN"), dir, 0)
	}},
	{"POSTRIDER_TEST_RABBITMQ", func(ctx context.Context, dir string, env environment) (*process.Server, error) {
		return process.StartRabbitMQ(ctx, env.get("POSTRIDER_TEST_RABBITMQ_BIN"), dir)
	}},
	{"POSTRIDER_TEST_KAFKA", func(ctx context.Context, dir string, env environment) (*process.Server, error) {
		return process.StartKafka(ctx, env.get("POSTRIDER_TEST_KAFKA_HOME"), dir)
	}},
}

// startServers starts what is not there yet, all at once, and fills env with the URLs. The function it returns stops what
// was started, also after an error.
func startServers(ctx context.Context, dir string, env environment) (stop func() error, err error) {
	started, failed := make([]*process.Server, len(servers)), make([]error, len(servers))
	stop = func() error {
		failed := make([]error, len(servers))
		each(func(i int, _ server) {
			if started[i] != nil {
				failed[i] = started[i].Stop()
			}
		})
		return errors.Join(failed...)
	}
	each(func(i int, s server) {
		if os.Getenv(s.variable) == "" {
			started[i], failed[i] = s.start(ctx, dir, env)
		}
	})
	for i, s := range servers {
		if started[i] != nil {
			env[s.variable] = started[i].URL
			fmt.Fprintf(os.Stderr, "withservers: %s=%s\n", s.variable, started[i].URL)
		}
	}
	return stop, errors.Join(failed...)
}

// each calls do for every server at the same time.
func each(do func(i int, s server)) {
	var all sync.WaitGroup
	for i, s := range servers {
		all.Go(func() { do(i, s) })
	}
	all.Wait()
}
