package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/postrider/postrider/internal/servertest"
)

// NATSCluster is a cluster of JetStream servers, whose names are their numbers.
type NATSCluster struct {
	Servers []*Server
	ctx     context.Context
	bin     string
	dir     string
	ports   []int // of clients
	routes  []int // of the other servers
}

// StartNATSCluster starts n servers at path bin as a cluster, with their data under dir.
func StartNATSCluster(ctx context.Context, bin, dir string, n int) (*NATSCluster, error) {
	c := &NATSCluster{Servers: make([]*Server, n), ctx: ctx, bin: bin, dir: dir}
	for range 2 * n {
		port, err := servertest.FreePort()
		if err != nil {
			return nil, err
		}
		c.ports = append(c.ports, port)
	}
	c.ports, c.routes = c.ports[:n], c.ports[n:]
	var errs []error
	for i := range n {
		errs = append(errs, c.Start(i))
	}
	return c, errors.Join(errs...)
}

// Start starts server i, which was stopped.
func (c *NATSCluster) Start(i int) error {
	var routes []string
	for _, port := range c.routes {
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", port))
	}
	dir := filepath.Join(c.dir, strconv.Itoa(i))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	p, err := Start(c.ctx, Command{
		Name: "nats-server", Path: c.bin, Log: filepath.Join(dir, "nats.log"), Ready: "Server is ready",
		Args: []string{
			"--addr", "127.0.0.1", "--port", strconv.Itoa(c.ports[i]), "--jetstream", "--store_dir", filepath.Join(dir, "jetstream"),
			"--name", strconv.Itoa(i), "--cluster_name", "test", "--cluster", fmt.Sprintf("nats://127.0.0.1:%d", c.routes[i]),
			"--routes", strings.Join(routes, ","),
		},
	})
	if err != nil {
		return err
	}
	c.Servers[i] = &Server{p, fmt.Sprintf("nats://127.0.0.1:%d", c.ports[i])}
	return nil
}

// URL is that of all servers.
func (c *NATSCluster) URL() string {
	var hosts []string
	for _, port := range c.ports {
		hosts = append(hosts, fmt.Sprintf("127.0.0.1:%d", port))
	}
	return "nats://" + strings.Join(hosts, ",")
}
