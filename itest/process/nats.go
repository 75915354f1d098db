package process

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
)

// StartNATS starts the nats-server at path bin with JetStream, on the loopback interface, with its data under dir. With
// port 0 it uses a free port; to restart a server, pass the same dir and its old port.
func StartNATS(ctx context.Context, bin, dir string, port int) (*Server, error) {
	start := func(port int) (*Server, error) {
		p, err := Start(ctx, Command{
			Name: "nats-server", Path: bin,
			Args: []string{"--addr", "127.0.0.1", "--port", strconv.Itoa(port), "--jetstream", "--store_dir", filepath.Join(dir, "jetstream")},
			Log:  filepath.Join(dir, "nats.log"), Ready: "Server is ready",
		})
		if err != nil {
			return nil, err
		}
		return &Server{p, fmt.Sprintf("nats://127.0.0.1:%d", port)}, nil
	}
	if port != 0 {
		return start(port)
	}
	return onFreePort(start)
}
