package process

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
)

// StartRedis starts the redis-server at path bin on the loopback interface, with its append-only file under dir. With
// port 0 it uses a free port; to restart a server, pass the same dir and its old port. The file has every write before
// the client gets its response, so that a killed server loses nothing; nothing waits for the disk.
func StartRedis(ctx context.Context, bin, dir string, port int) (*Server, error) {
	start := func(port int) (*Server, error) {
		p, err := Start(ctx, Command{
			Name: "redis-server", Path: bin,
			Args: []string{
				"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", dir, "--save", "", "--appendonly", "yes",
				"--appendfsync", "no", "--daemonize", "no", "--logfile", "",
			},
			Log: filepath.Join(dir, "redis.log"), Ready: "Ready to accept connections",
		})
		if err != nil {
			return nil, err
		}
		return &Server{p, fmt.Sprintf("redis://127.0.0.1:%d", port)}, nil
	}
	if port != 0 {
		return start(port)
	}
	return onFreePort(start)
}
