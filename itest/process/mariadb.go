package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// mariaSettings suit tests on a small machine. Nothing here survives, so nothing waits for the disk.
var mariaSettings = []string{
	"--bind-address=127.0.0.1",
	"--skip-name-resolve",
	"--innodb-flush-log-at-trx-commit=0",
	"--innodb-doublewrite=OFF",
	"--innodb-buffer-pool-size=256M",
	"--innodb-log-file-size=512M",
	"--innodb-print-all-deadlocks=ON",
	"--max-connections=300",
	"--max-allowed-packet=64M",
	"--character-set-server=utf8mb4",
}

// StartMariaDB creates a data directory under dir and starts the mariadbd at path bin on a free port of the loopback
// interface, with root as a superuser without a password. Its error log is dir/mariadb.log. MariaDB refuses to run as root:
// there, it runs as mysql or nobody. settings are further arguments of mariadbd and win over those that suit tests.
func StartMariaDB(ctx context.Context, bin, dir string, settings ...string) (*Server, error) {
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
	create.Env = append(os.Environ(), "TMPDIR="+data) // ours may be closed to its user
	create.SysProcAttr = &syscall.SysProcAttr{Credential: owner}
	if out, err := create.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("create a MariaDB data directory in %s: %w\n%s", data, err, out)
	}
	return onFreePort(func(port int) (*Server, error) { return runMariaDB(ctx, bin, dir, owner, port, settings) })
}

// RestartMariaDB starts a MariaDB that has ended, e.g. by Kill, on the data and the port that it had.
func RestartMariaDB(ctx context.Context, bin, dir, url string, settings ...string) (*Server, error) {
	var port int
	if _, err := fmt.Sscanf(url, mariaURL, &port); err != nil {
		return nil, fmt.Errorf("restart MariaDB at %q: %w", url, err)
	}
	owner, err := unprivileged("MariaDB", "mysql", "nobody")
	if err != nil {
		return nil, err
	}
	return runMariaDB(ctx, bin, dir, owner, port, settings)
}

const mariaURL = "mysql://root@127.0.0.1:%d/"

func runMariaDB(ctx context.Context, bin, dir string, owner *syscall.Credential, port int, settings []string) (*Server, error) {
	data := filepath.Join(dir, "mariadb")
	args := append([]string{"--no-defaults", "--datadir=" + data, "--port=" + strconv.Itoa(port),
		"--socket=" + filepath.Join(data, "sock"), "--pid-file=" + filepath.Join(data, "pid")}, mariaSettings...)
	p, err := Start(ctx, Command{
		Name: "MariaDB", Path: bin, Args: append(args, settings...), Dir: data, User: owner, Env: []string{"TMPDIR=" + data},
		Log: filepath.Join(dir, "mariadb.log"), Ready: "ready for connections",
	})
	if err != nil {
		return nil, err
	}
	return &Server{p, fmt.Sprintf(mariaURL, port)}, nil
}

// mariaInstaller finds the program that creates data directories: where the server's own installation has it, or in PATH.
func mariaInstaller(bin string) (string, error) {
	const name = "mariadb-install-db"
	for _, folder := range []string{"bin", "scripts"} {
		beside := filepath.Join(filepath.Dir(filepath.Dir(bin)), folder, name)
		if path, err := exec.LookPath(beside); err == nil {
			return path, nil
		}
	}
	return exec.LookPath(name)
}
