package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// mariaSettings suit tests on a small machine. No data needs to survive, so nothing waits for the disk.
var mariaSettings = []string{
	"--bind-address=127.0.0.1",
	"--skip-name-resolve",
	"--innodb-flush-log-at-trx-commit=0",
	"--innodb-doublewrite=OFF",
	"--debug-no-sync",
	"--innodb-buffer-pool-size=256M",
	"--innodb-log-file-size=512M",
	"--innodb-print-all-deadlocks=ON",
	"--max-connections=500",
	"--max-allowed-packet=64M",
	"--character-set-server=utf8mb4",
}

// StartMariaDB creates a data directory under dir and starts the mariadbd at path bin on a free loopback port, with root
// as a superuser without a password. Its error log is dir/mariadb.log. MariaDB refuses to run as root: as root, it is run
// as mysql or nobody. settings are further arguments of mariadbd that override the test settings.
func StartMariaDB(ctx context.Context, bin, dir string, settings ...string) (*Server, error) {
	m, err := NewMariaDB(ctx, bin, dir, settings...)
	if err != nil {
		return nil, err
	}
	return m.Start(ctx)
}

// MariaDB is a data directory whose server can be stopped, killed and restarted on the same port.
type MariaDB struct {
	// Port is where the server listens: 0 until it is first started.
	Port           int
	bin, data, log string
	owner          *syscall.Credential
	settings       []string
}

// NewMariaDB creates a data directory, as StartMariaDB does.
func NewMariaDB(ctx context.Context, bin, dir string, settings ...string) (*MariaDB, error) {
	install, err := mariaInstaller(bin)
	if err != nil {
		return nil, err
	}
	owner, err := unprivileged("MariaDB", "mysql", "nobody")
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "mariadb")
	if err := os.Mkdir(data, 0o700); err != nil {
		return nil, err
	}
	if owner != nil {
		if err := os.Chown(data, int(owner.Uid), int(owner.Gid)); err != nil {
			return nil, err
		}
	}
	create := exec.CommandContext(ctx, install, "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal",
		"--skip-test-db", "--skip-name-resolve")
	create.Dir = data
	create.Env = append(os.Environ(), "TMPDIR="+data) // this process's folder may be inaccessible to its user
	create.SysProcAttr = &syscall.SysProcAttr{Credential: owner}
	if out, err := create.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("create a MariaDB data directory in %s: %w\n%s", data, err, out)
	}
	return &MariaDB{
		bin: bin, data: data, log: filepath.Join(dir, "mariadb.log"), owner: owner, settings: slices.Concat(mariaSettings, settings),
	}, nil
}

// Start starts the server: on a free port the first time, then on the same one.
func (m *MariaDB) Start(ctx context.Context) (*Server, error) {
	start := func(port int) (*Server, error) {
		args := []string{"--no-defaults", "--datadir=" + m.data, "--port=" + strconv.Itoa(port),
			"--socket=" + filepath.Join(m.data, "sock"), "--pid-file=" + filepath.Join(m.data, "pid")}
		p, err := Start(ctx, Command{
			Name: "MariaDB", Path: m.bin, Args: append(args, m.settings...), Dir: m.data, User: m.owner,
			Env: []string{"TMPDIR=" + m.data}, Log: m.log, Ready: "ready for connections",
		})
		if err != nil {
			return nil, err
		}
		m.Port = port
		return &Server{p, fmt.Sprintf("mysql://root@127.0.0.1:%d/", port)}, nil
	}
	if m.Port != 0 {
		return start(m.Port)
	}
	return onFreePort(start)
}

// mariaInstaller finds the program that creates data directories: in the server's installation, or in PATH.
func mariaInstaller(bin string) (string, error) {
	const name = "mariadb-install-db"
	for _, folder := range []string{"bin", "scripts"} {
		alongside := filepath.Join(filepath.Dir(filepath.Dir(bin)), folder, name)
		if path, err := exec.LookPath(alongside); err == nil {
			return path, nil
		}
	}
	return exec.LookPath(name)
}
