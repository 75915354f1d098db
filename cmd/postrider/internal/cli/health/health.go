// Package health has the command "postrider health", which asks a running process whether it is ready.
package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/config"
)

// Command returns the command.
func Command(p *program.Program) *cobra.Command { return commands{p}.command() }

// commands has the functions of the commands.
type commands struct{ *program.Program }

func (p commands) command() *cobra.Command {
	var address string
	var live bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask a relay process on this host whether it is ready",
		Long: `Ask a running postrider relay at /readyz whether every relay works and its store answers, or with --live at /livez
whether the process lives. It is the health check of a container, whose image has no shell and no other client.

Exit code 3 says that the process is not ready, 1 that it does not answer.`,
		Example: `  postrider health --config /etc/postrider.yaml
  postrider health --address :8080
  postrider health --address 10.0.0.7:8080 --live`,
		Args: program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if timeout <= 0 {
				return program.Usagef("--timeout must be positive, is %s", timeout)
			}
			at, err := p.address(address)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return p.ask(ctx, at, live)
		},
	}
	s := cmd.Flags()
	s.StringVar(&address, "address", "", "`address` of the process (default http.listen of the configuration)")
	s.BoolVar(&live, "live", false, "ask whether the process lives, not whether it is ready")
	s.DurationVar(&timeout, "timeout", 5*time.Second, "wait at most this `duration` for an answer")
	return cmd
}

// address returns where the process listens. An address without a host is on this host.
func (p commands) address(flag string) (string, error) {
	if flag == "" {
		c, _, err := p.Load()
		if err != nil {
			return "", err
		}
		if flag = c.HTTP.Listen; flag == "" {
			return "", program.Usagef("no address is given; use --address, POSTRIDER_HTTP_LISTEN or http.listen in --config")
		}
	}
	if err := config.CheckListen(flag); err != nil {
		return "", program.Usagef("--address: %v", err)
	}
	host, port, err := net.SplitHostPort(flag)
	if err != nil {
		return "", program.Usagef("--address: %v", err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port), nil
}

// ask asks the process and prints the answer.
func (p commands) ask(ctx context.Context, address string, live bool) (err error) {
	path, yes, no := "/readyz", "ready", "not ready; its log says why"
	if live {
		path, yes, no = "/livez", "alive", "not alive"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("the process does not answer: %w", err)
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if response.StatusCode != http.StatusOK {
		return program.Exit(program.ExitNo, fmt.Errorf("%s is %s", address, no))
	}
	_, err = fmt.Fprintln(p.Stdout, yes)
	return err
}
