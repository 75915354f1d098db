package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/itest/process"
)

// program is a program that the tests need and that is not a Go module.
type program struct {
	find func(name string) (string, error)
	// packages are the Debian packages that contain it.
	packages []string
}

var programs = map[string]program{
	"gcc":                     {exec.LookPath, []string{"gcc", "libc6-dev"}},
	"initdb":                  {process.PostgresProgram, []string{"postgresql"}},
	"pgbench":                 {process.PostgresProgram, []string{"postgresql"}},
	"mariadbd":                {lookSystem, []string{"mariadb-server"}},
	"mariadb-slap":            {exec.LookPath, []string{"mariadb-client"}},
	"redis-server":            {lookSystem, []string{"redis-server"}},
	"rabbitmq-server":         {lookSystem, []string{"rabbitmq-server"}},
	"mvn":                     {exec.LookPath, []string{"maven"}},
	"java":                    {exec.LookPath, []string{"default-jre-headless"}},
	"python3":                 {findPython, []string{"python3", "python3-venv"}},
	"npm":                     {exec.LookPath, []string{"npm"}},
	"pgbouncer":               {lookSystem, []string{"pgbouncer"}},
	"prometheus":              {exec.LookPath, []string{"prometheus"}},
	"promtool":                {exec.LookPath, []string{"prometheus"}},
	"prometheus-alertmanager": {exec.LookPath, []string{"prometheus-alertmanager"}},
	"chromium":                {exec.LookPath, []string{"chromium", "fonts-inter", "fonts-noto-core"}},
}

// program returns the path of a program, which it installs if it is missing.
func (s *supply) program(name string) (string, error) {
	s.installing.Lock() // one apt-get at a time
	defer s.installing.Unlock()
	p := programs[name]
	if path, err := p.find(name); err == nil {
		return path, nil
	}
	if err := s.install(name, p.packages); err != nil {
		return "", err
	}
	path, err := p.find(name)
	if err != nil {
		return "", fmt.Errorf("installed %s, but %s is still not found: %w", strings.Join(p.packages, " "), name, err)
	}
	return path, nil
}

// lookSystem searches PATH and the folder where Debian installs servers, which is not in every user's PATH.
func lookSystem(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return exec.LookPath(filepath.Join("/usr/sbin", name))
}

func (s *supply) install(name string, packages []string) error {
	advice := fmt.Sprintf("the tests need %s: install it (on Debian: apt-get install %s), or name what you have in the environment"+
		" (go doc ./itest/cmd/withservers)", name, strings.Join(packages, " "))
	aptGet, err := exec.LookPath("apt-get")
	if err != nil || os.Geteuid() != 0 {
		return errors.New(advice)
	}
	fmt.Fprintln(os.Stderr, "withservers: installing", strings.Join(packages, " "))
	if !s.updated {
		if err := apt(s.ctx, aptGet, "update", "-q"); err != nil {
			return fmt.Errorf("%w; %s", err, advice)
		}
		s.updated = true
	}
	if err := apt(s.ctx, aptGet, append([]string{"install", "-q", "-y", "--no-install-recommends"}, packages...)...); err != nil {
		return fmt.Errorf("%w; %s", err, advice)
	}
	return nil
}

func apt(ctx context.Context, aptGet string, args ...string) error {
	// Wait if another program is installing.
	cmd := exec.CommandContext(ctx, aptGet, append([]string{"-o", "DPkg::Lock::Timeout=600"}, args...)...)
	// The packages would also start system servers; RUNLEVEL=1 prevents that.
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("apt-get %s: %w", args[0], err)
	}
	return nil
}

// The programs that are Go modules: the folder whose go.mod has their version, and the package.
var goPrograms = map[servertest.Name][2]string{
	servertest.NATSBin:        {"tools", "github.com/nats-io/nats-server/v2"},
	servertest.HelmBin:        {"tools/deploy", "helm.sh/helm/v3/cmd/helm"},
	servertest.KubeconformBin: {"tools/deploy", "github.com/yannh/kubeconform/cmd/kubeconform"},
}

// buildProgram builds a program that is a Go module.
func (s *supply) buildProgram(variable servertest.Name) (string, error) {
	folder, pkg := goPrograms[variable][0], goPrograms[variable][1]
	root, err := repository(s.ctx)
	if err != nil {
		return "", fmt.Errorf("the version of %s is unknown: %w, or set %s", pkg, err, variable)
	}
	bin := filepath.Join(root, ".cache", "bin", path.Base(strings.TrimSuffix(pkg, "/v2")))
	build := exec.CommandContext(s.ctx, "go", "build", "-trimpath", "-o", bin, pkg)
	build.Dir = filepath.Join(root, folder)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off") // the tools' dependencies are not the project's
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s in %s: %w\n%s", pkg, build.Dir, err, out)
	}
	return bin, nil
}
