package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/postrider/postrider/internal/servertest"
)

// Server is a running server and its URL for clients.
type Server struct {
	*Process
	URL string
}

// PostgresProgram finds a PostgreSQL program: where Debian installs each major version, newest first, or else in PATH.
// (Debian's programs in PATH are wrappers that choose a version and a system cluster.)
func PostgresProgram(name string) (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err != nil || len(found) == 0 {
		return exec.LookPath(name)
	}
	major := func(path string) int {
		n, _ := strconv.Atoi(strings.Split(path, "/")[4])
		return n
	}
	return slices.MaxFunc(found, func(a, b string) int { return major(a) - major(b) }), nil
}

// postgresSettings suit tests on a small machine. No data needs to survive, so nothing waits for the disk.
var postgresSettings = []string{
	"listen_addresses=127.0.0.1",
	"unix_socket_directories=",
	"fsync=off",
	"full_page_writes=off",
	"wal_level=logical",
	"max_connections=500",
	"max_prepared_transactions=20",
	"shared_buffers=256MB",
	"max_wal_size=2GB",
	"lc_messages=C", // the ready line below is English
	"timezone=UTC",
}

// StartPostgres creates a cluster under dir and starts its server on a free loopback port. It trusts every local user,
// with postgres as superuser. PostgreSQL refuses to run as root: as root, it is run as postgres or nobody. Settings, as
// name=value, override the test settings: fsync=on makes the server durable.
func StartPostgres(ctx context.Context, dir string, settings ...string) (*Server, error) {
	c, err := NewPostgres(ctx, dir, settings...)
	if err != nil {
		return nil, err
	}
	return c.Start(ctx)
}

// Postgres is a cluster whose server can be stopped, crashed and restarted on the same port.
type Postgres struct {
	// Data is the data directory.
	Data string
	// Port is where the server listens: 0 until it is first started.
	Port     int
	bin, log string
	owner    *syscall.Credential
	settings []string
}

// NewPostgres creates a cluster in dir/postgres, as StartPostgres does.
func NewPostgres(ctx context.Context, dir string, settings ...string) (*Postgres, error) {
	initdb, err := PostgresProgram("initdb")
	if err != nil {
		return nil, err
	}
	c := &Postgres{
		Data: filepath.Join(dir, "postgres"), bin: filepath.Dir(initdb), log: filepath.Join(dir, "postgres.log"),
		settings: slices.Concat(postgresSettings, settings),
	}
	if c.owner, err = unprivileged("PostgreSQL", "postgres", "nobody"); err != nil {
		return nil, err
	}
	if err := c.makeData(); err != nil {
		return nil, err
	}
	return c, c.run(ctx, "create a PostgreSQL cluster", "initdb", "--pgdata", c.Data, "--username=postgres", "--auth=trust",
		"--encoding=UTF8", "--no-locale", "--no-sync", "--no-instructions")
}

func (c *Postgres) makeData() error {
	if err := os.Mkdir(c.Data, 0o700); err != nil {
		return err
	}
	if c.owner == nil {
		return nil
	}
	return os.Chown(c.Data, int(c.owner.Uid), int(c.owner.Gid))
}

// run runs a PostgreSQL program to its end.
func (c *Postgres) run(ctx context.Context, what, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, program), args...)
	cmd.Dir = c.Data
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.owner}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s in %s: %w\n%s", what, c.Data, err, out)
	}
	return nil
}

// Start starts the server: on a free port the first time, then on the same one.
func (c *Postgres) Start(ctx context.Context) (*Server, error) {
	start := func(port int) (*Server, error) {
		args := []string{"-D", c.Data, "-p", strconv.Itoa(port)}
		for _, s := range c.settings {
			args = append(args, "-c", s)
		}
		p, err := Start(ctx, Command{
			Name: "PostgreSQL", Path: filepath.Join(c.bin, "postgres"), Args: args, Dir: c.Data, User: c.owner,
			Log: c.log, Ready: "database system is ready to accept", // connections, or read-only connections
			StopSignal: syscall.SIGINT, DeathSignal: syscall.SIGQUIT, // "fast" and "immediate": do not wait for clients
		})
		if err != nil {
			return nil, err
		}
		c.Port = port
		return &Server{p, fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)}, nil
	}
	if c.Port != 0 {
		return start(c.Port)
	}
	return onFreePort(start)
}

// Standby creates a copy of a running cluster in dir/postgres that replicates from it when started.
func (c *Postgres) Standby(ctx context.Context, dir string) (*Postgres, error) {
	standby := &Postgres{
		Data: filepath.Join(dir, "postgres"), bin: c.bin, log: filepath.Join(dir, "postgres.log"), owner: c.owner, settings: c.settings,
	}
	if err := standby.makeData(); err != nil {
		return nil, err
	}
	return standby, standby.run(ctx, "copy a PostgreSQL cluster", "pg_basebackup", "--pgdata", standby.Data, "--write-recovery-conf",
		"--host=127.0.0.1", "--port="+strconv.Itoa(c.Port), "--username=postgres", "--checkpoint=fast", "--no-sync")
}

// unprivileged is the user as which to run a server that refuses to run as root, the first of names that exists: nil (the
// current user) unless this process runs as root.
func unprivileged(server string, names ...string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range names {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, fmt.Errorf("%s refuses to run as root, and there is no user to run it as: create one of %s", server, strings.Join(names, ", "))
}

// onFreePort calls start with a port that was free a moment ago, and with another if that failed: another process may
// have taken the port meanwhile.
func onFreePort(start func(port int) (*Server, error)) (*Server, error) {
	const tries = 3
	var failures []error
	for range tries {
		port, err := servertest.FreePort()
		if err != nil {
			return nil, err
		}
		s, err := start(port)
		if err == nil {
			return s, nil
		}
		failures = append(failures, err)
		if errors.Is(err, errSlow) || errors.Is(err, context.Canceled) {
			break // the port was not the problem
		}
	}
	return nil, errors.Join(failures...)
}
