// Command temporal is a peer of the suite saga-flow of package bench: a Temporal server, its worker and its clients, on a PostgreSQL server
// that it is given. It is a module of its own, outside go.work, because the server has many dependencies.
//
// Its arguments are the URL of PostgreSQL's superuser and the number of workflows of a run. It writes "ready" when the server runs. Then, for
// each line that it reads, it runs the workflows and writes a line of JSON: what package bench reads as report.Figures.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/postgresql"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/temporal"
	sqltool "go.temporal.io/server/tools/sql"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	if len(args) != 2 {
		return errors.New("usage: temporal <URL of PostgreSQL> <workflows>")
	}
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	addr, err := startServer(ctx, args[0])
	if err != nil {
		return err
	}
	s, err := newShop(ctx, args[0], addr)
	if err != nil {
		return err
	}
	defer s.close()
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		figures, err := s.flow(ctx, n)
		if err != nil {
			return err
		}
		if err := json.NewEncoder(os.Stdout).Encode(figures); err != nil {
			return err
		}
	}
	return nil
}

const (
	loopback            = "127.0.0.1"
	history, visibility = "temporal", "temporal_visibility"
	// shards and connections are more than in the server's configuration for development on PostgreSQL, which has 4 and 20.
	shards, connections = 16, 40
)

// startServer starts all services of a server in this process, on databases that it makes. It returns the address of the frontend.
func startServer(ctx context.Context, server string) (string, error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", err
	}
	for _, database := range []string{history, visibility} {
		if err := makeDatabase(ctx, u, database); err != nil {
			return "", fmt.Errorf("make the database %s: %w", database, err)
		}
	}
	c, err := serverConfig(u)
	if err != nil {
		return "", err
	}
	hosts := make(map[primitives.ServiceName]static.Hosts)
	for name, service := range c.Services { // all in this process: they need not look for each other
		hosts[primitives.ServiceName(name)] = static.SingleLocalHost(net.JoinHostPort(loopback, strconv.Itoa(service.RPC.GRPCPort)))
	}
	s, err := temporal.NewServer(
		temporal.WithStaticHosts(hosts), temporal.WithConfig(c), temporal.ForServices(temporal.DefaultServices), temporal.WithLogger(log.NewNoopLogger()),
		temporal.WithDynamicConfigClient(dynamicconfig.StaticClient{
			dynamicconfig.NamespaceCacheRefreshInterval.Key(): []dynamicconfig.ConstrainedValue{{Value: time.Second}}, // a new namespace is seen at once
		}),
	)
	if err != nil {
		return "", err
	}
	return c.PublicClient.HostPort, s.Start()
}

// makeDatabase makes a database with Temporal's tables.
func makeDatabase(ctx context.Context, server *url.URL, name string) error {
	conn, err := pgx.Connect(ctx, server.String())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, statement := range []string{"drop database if exists %s with (force)", "create database %s"} {
		if _, err := conn.Exec(ctx, fmt.Sprintf(statement, name)); err != nil {
			return err
		}
	}
	schema := map[string]string{history: "postgresql/v12/temporal", visibility: "postgresql/v12/visibility"}[name]
	password, _ := server.User.Password()
	flags := []string{
		"temporal-sql-tool", "--quiet", "--plugin", postgresql.PluginNamePGX, "--endpoint", server.Hostname(), "--port", server.Port(),
		"--user", server.User.Username(), "--password", password, "--database", name,
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = null.Close() }()
	stdout, stderr := os.Stdout, os.Stderr
	os.Stdout, os.Stderr = null, null // the tool logs every statement; if one fails, the server says that its schema is too old
	defer func() { os.Stdout, os.Stderr = stdout, stderr }()
	return errors.Join(
		sqltool.RunTool(append(flags, "setup-schema", "--version", "0.0")), sqltool.RunTool(append(flags, "update-schema", "--schema-name", schema)))
}

func serverConfig(server *url.URL) (*config.Config, error) {
	password, _ := server.User.Password()
	stores := make(map[string]config.DataStore)
	for _, database := range []string{history, visibility} {
		stores[database] = config.DataStore{SQL: &config.SQL{
			PluginName: postgresql.PluginNamePGX, ConnectAddr: server.Host, ConnectProtocol: "tcp", User: server.User.Username(), Password: password,
			DatabaseName: database, MaxConns: connections, MaxIdleConns: connections, MaxConnLifetime: time.Hour,
		}}
	}
	c := &config.Config{
		Persistence: config.Persistence{DefaultStore: history, VisibilityStore: visibility, NumHistoryShards: shards, DataStores: stores},
		Services:    make(map[string]config.Service),
		Archival: config.Archival{
			History: config.HistoryArchival{State: "disabled"}, Visibility: config.VisibilityArchival{State: "disabled"},
		},
		NamespaceDefaults: config.NamespaceDefaults{Archival: config.ArchivalNamespaceDefaults{
			History: config.HistoryArchivalNamespaceDefaults{State: "disabled"}, Visibility: config.VisibilityArchivalNamespaceDefaults{State: "disabled"},
		}},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
	}
	c.Global.Membership = config.Membership{MaxJoinDuration: 30 * time.Second, BroadcastAddress: loopback}
	var frontend int
	ports, err := freePorts(8)
	if err != nil {
		return nil, err
	}
	for i, service := range []string{"worker", "matching", "history", "frontend"} {
		frontend = ports[2*i]
		c.Services[service] = config.Service{RPC: config.RPC{GRPCPort: ports[2*i], MembershipPort: ports[2*i+1], BindOnLocalHost: true}}
	}
	address := net.JoinHostPort(loopback, strconv.Itoa(frontend))
	c.PublicClient = config.PublicClient{HostPort: address}
	c.ClusterMetadata = &cluster.Config{
		FailoverVersionIncrement: 10, MasterClusterName: "active", CurrentClusterName: "active",
		ClusterInformation: map[string]cluster.ClusterInformation{"active": {Enabled: true, InitialFailoverVersion: 1, RPCAddress: address}},
	}
	return c, nil
}

// freePorts returns ports that nobody listens on.
func freePorts(n int) (ports []int, err error) {
	for range n {
		l, err := net.Listen("tcp", loopback+":0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
