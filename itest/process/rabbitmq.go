package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/postrider/postrider/internal/servertest"
)

// rabbitSettings suit tests on a small machine.
const rabbitSettings = `disk_free_limit.absolute = 10MB
log.console.level = warning
`

// StartRabbitMQ starts the rabbitmq-server at path bin, without plugins, on a free loopback port, with all its data and
// configuration under dir. Its node uses a separate epmd, which ends with it, so that it is independent of a system
// RabbitMQ. Clients connect as guest with the password guest.
func StartRabbitMQ(ctx context.Context, bin, dir string) (*Server, error) {
	script, err := rabbitScript(bin)
	if err != nil {
		return nil, fmt.Errorf("start RabbitMQ: %w", err)
	}
	dir = filepath.Join(dir, "rabbitmq")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	settings, none := filepath.Join(dir, "rabbitmq.conf"), filepath.Join(dir, "rabbitmq-env.conf")
	if err := errors.Join(os.WriteFile(settings, []byte(rabbitSettings), 0o600), os.WriteFile(none, nil, 0o600)); err != nil {
		return nil, err
	}
	return onFreePort(func(port int) (*Server, error) {
		others, err := freePort()
		if err != nil {
			return nil, err
		}
		epmd, err := startEPMD(ctx, dir)
		if err != nil {
			return nil, err
		}
		p, err := Start(ctx, Command{
			Name: "RabbitMQ", Path: script, Dir: dir,
			Env: append(rabbitEnv(dir, settings, none, port), "RABBITMQ_DIST_PORT="+others, "ERL_EPMD_PORT="+epmd.URL),
			Log: filepath.Join(dir, "rabbitmq.log"), Ready: " completed with ",
		})
		if err != nil {
			return nil, errors.Join(err, epmd.Kill())
		}
		go func() {
			<-p.Done()
			_ = epmd.Kill() // it ends with this process at the latest
		}()
		return &Server{p, fmt.Sprintf("amqp://guest:guest@127.0.0.1:%d/", port)}, nil
	})
}

// rabbitScript finds the script that becomes the Erlang VM. Debian's program in PATH is a wrapper that changes the user
// and would come between this process and the VM; the script is next to it.
func rabbitScript(bin string) (string, error) {
	path, err := filepath.EvalSymlinks(bin)
	if err == nil && filepath.Base(path) == "rabbitmq-script-wrapper" {
		path = filepath.Join(filepath.Dir(path), "rabbitmq-server")
	}
	return path, err
}

// rabbitEnv isolates a server from the system's configuration.
func rabbitEnv(dir, settings, none string, port int) []string {
	in := func(name string) string { return filepath.Join(dir, name) }
	return []string{
		"HOME=" + dir,                // for the cookie
		"RUNNING_UNDER_SYSTEMD=true", // or the script would remain as the VM's parent
		"RABBITMQ_NODENAME=postrider@localhost",
		"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
		"RABBITMQ_NODE_PORT=" + strconv.Itoa(port),
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
		"RABBITMQ_CONF_ENV_FILE=" + none,
		"RABBITMQ_CONFIG_FILE=" + settings,
		"RABBITMQ_CONFIG_FILES=" + in("conf.d"),
		"RABBITMQ_ADVANCED_CONFIG_FILE=" + in("advanced.config"),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + in("enabled_plugins"),
		"RABBITMQ_MNESIA_BASE=" + in("mnesia"),
		"RABBITMQ_LOG_BASE=" + in("log"),
		"RABBITMQ_LOGS=-",
		"RABBITMQ_PID_FILE=" + in("pid"),
		"ERL_CRASH_DUMP=" + in("erl_crash.dump"),
	}
}

// freePort is the number of a port that was free a moment ago.
func freePort() (string, error) {
	port, err := servertest.FreePort()
	return strconv.Itoa(port), err
}

// startEPMD starts the daemon through which Erlang nodes find each other, in the foreground. Its URL is its port.
func startEPMD(ctx context.Context, dir string) (*Server, error) {
	epmd, err := exec.LookPath("epmd")
	if err != nil {
		return nil, fmt.Errorf("start RabbitMQ: %w: install Erlang (on Debian, rabbitmq-server comes with it)", err)
	}
	return onFreePort(func(port int) (*Server, error) {
		number := strconv.Itoa(port)
		p, err := Start(ctx, Command{
			Name: "epmd", Path: epmd, Args: []string{"-port", number, "-address", "127.0.0.1", "-debug"},
			Log: filepath.Join(dir, "epmd.log"), Ready: "epmd running",
		})
		if err != nil {
			return nil, err
		}
		return &Server{p, number}, nil
	})
}
