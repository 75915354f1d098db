package main

import (
	"context"
	"errors"
	"fmt"
	"os"

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
	{"POSTRIDER_TEST_NATS", func(ctx context.Context, dir string, env environment) (*process.Server, error) {
		return process.StartNATS(ctx, env.get("POSTRIDER_TEST_NATS_BIN"), dir, 0)
	}},
}

// startServers starts what is not there yet and fills env with the URLs. The function it returns stops what was started,
// also after an error.
func startServers(ctx context.Context, dir string, env environment) (stop func() error, err error) {
	var started []*process.Server
	stop = func() error {
		var all error
		for _, s := range started {
			all = errors.Join(all, s.Stop())
		}
		return all
	}
	for _, s := range servers {
		if os.Getenv(s.variable) != "" {
			continue
		}
		running, err := s.start(ctx, dir, env)
		if err != nil {
			return stop, err
		}
		started = append(started, running)
		env[s.variable] = running.URL
		fmt.Fprintf(os.Stderr, "withservers: %s=%s\n", s.variable, running.URL)
	}
	return stop, nil
}
