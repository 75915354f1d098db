package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/postrider/postrider/itest/process"
)

// program is one that the tests need and that does not come as a Go module.
type program struct {
	name string
	// unless is the variable that makes the program unnecessary when it is set; with export, the path goes there.
	unless string
	export bool
	find   func(name string) (string, error)
	// packages are those of Debian that hold it.
	packages []string
}

var programs = []program{
	{name: "gcc", unless: "CC", find: exec.LookPath, packages: []string{"gcc", "libc6-dev"}}, // for the race detector
	{name: "initdb", unless: "POSTRIDER_TEST_POSTGRES", find: process.PostgresProgram, packages: []string{"postgresql"}},
	{name: "pgbench", unless: "POSTRIDER_TEST_PGBENCH_BIN", export: true, find: process.PostgresProgram, packages: []string{"postgresql"}},
	{name: "mariadbd", unless: "POSTRIDER_TEST_MARIADB_BIN", export: true, find: lookSystem, packages: []string{"mariadb-server"}},
	{name: "mariadb-slap", unless: "POSTRIDER_TEST_MARIADB_SLAP_BIN", export: true, find: exec.LookPath, packages: []string{"mariadb-client"}},
	{name: "redis-server", unless: "POSTRIDER_TEST_REDIS_BIN", export: true, find: lookSystem, packages: []string{"redis-server"}},
	{name: "rabbitmq-server", unless: "POSTRIDER_TEST_RABBITMQ_BIN", export: true, find: lookSystem, packages: []string{"rabbitmq-server"}},
	{name: "mvn", unless: "POSTRIDER_TEST_KAFKA_HOME", find: exec.LookPath, packages: []string{"maven"}},
	{name: "java", unless: "POSTRIDER_TEST_KAFKA", find: exec.LookPath, packages: []string{"default-jre-headless"}},
	{name: "pgbouncer", unless: "POSTRIDER_TEST_PGBOUNCER_BIN", export: true, find: lookSystem, packages: []string{"pgbouncer"}},
}

// provide finds the programs that the tests need, installs or builds those that are missing, and fills env with the paths.
func provide(ctx context.Context, env environment) error {
	missing := locate(env)
	if len(missing) > 0 {
		if err := install(ctx, missing); err != nil {
			return err
		}
		if missing = locate(env); len(missing) > 0 {
			return fmt.Errorf("installed, but still not found: %s", strings.Join(names(missing), ", "))
		}
	}
	return errors.Join(buildNATS(ctx, env), provideKafka(ctx, env))
}

// locate fills env with the paths of the programs found and returns the others.
func locate(env environment) (missing []program) {
	for _, p := range programs {
		if os.Getenv(p.unless) != "" {
			continue
		}
		path, err := p.find(p.name)
		switch {
		case err != nil:
			missing = append(missing, p)
		case p.export:
			env[p.unless] = path
		}
	}
	return missing
}

// lookSystem looks in PATH and where Debian puts servers, which is not in every user's PATH.
func lookSystem(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return exec.LookPath(filepath.Join("/usr/sbin", name))
}

func install(ctx context.Context, missing []program) error {
	var packages []string
	for _, p := range missing {
		packages = append(packages, p.packages...)
	}
	slices.Sort(packages)
	packages = slices.Compact(packages)
	advice := fmt.Sprintf("the tests need %s: install it (on Debian: apt-get install %s), or name what you have in the environment"+
		" (go doc ./itest/cmd/withservers)", strings.Join(names(missing), ", "), strings.Join(packages, " "))
	aptGet, err := exec.LookPath("apt-get")
	if err != nil || os.Geteuid() != 0 {
		return errors.New(advice)
	}
	fmt.Fprintln(os.Stderr, "withservers: installing", strings.Join(packages, " "))
	for _, args := range [][]string{
		{"update", "-q"},
		append([]string{"install", "-q", "-y", "--no-install-recommends"}, packages...),
	} {
		cmd := exec.CommandContext(ctx, aptGet, args...)
		// The packages would also start servers of their own, for the system; RUNLEVEL=1 asks them not to.
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("apt-get %s: %w; %s", args[0], err, advice)
		}
	}
	return nil
}

func names(programs []program) []string {
	var all []string
	for _, p := range programs {
		all = append(all, p.name)
	}
	return all
}

// buildNATS builds nats-server, which is a Go module, at the version that tools/go.mod names.
func buildNATS(ctx context.Context, env environment) error {
	const variable = "POSTRIDER_TEST_NATS_BIN"
	if os.Getenv(variable) != "" {
		return nil
	}
	root, err := repository(ctx)
	if err != nil {
		return fmt.Errorf("nats-server's version is unknown: %w, or set %s", err, variable)
	}
	bin := filepath.Join(root, ".cache", "bin", "nats-server")
	build := exec.CommandContext(ctx, "go", "build", "-o", bin, "github.com/nats-io/nats-server/v2")
	build.Dir = filepath.Join(root, "tools")
	build.Env = append(os.Environ(), "GOWORK=off") // the tools' dependencies are not the project's
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build nats-server in %s: %w\n%s", build.Dir, err, out)
	}
	env[variable] = bin
	return nil
}
