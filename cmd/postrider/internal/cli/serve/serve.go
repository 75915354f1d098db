// Package serve has the command "postrider serve", which serves the administration of an outbox.
package serve

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/cmd/postrider/internal/serving"
	"github.com/postrider/postrider/config"
)

// Command returns the command.
func Command(p *program.Program) *cobra.Command { return commands{p}.command() }

// commands has the functions of the commands.
type commands struct{ *program.Program }

// role is the value of --role.
type role string

// Allowed lists the values.
func (role) Allowed() []string { return []string{"viewer", "operator", "admin"} }

func (p commands) command() *cobra.Command {
	var flags config.Admin
	var as role
	var printCode bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the web UI and the HTTP API of an outbox",
		Long: `Serve pages that say whether everything is being delivered, what failed and why, and where a message is, and on which one
redrives, discards and decides. Every action is recorded. The same is served as an HTTP API below /api/v1.

On a loopback address it prints a link that signs you in once. On other addresses people sign in with access tokens
(postrider token create), and the server needs TLS. Payloads, headers, keys and subjects are hidden
unless admin.show in the configuration shows them.

It runs no relay: postrider relay --admin does both.`,
		Example: `  postrider serve --store sqlite:shop.db
  postrider serve --config /etc/postrider.yaml --listen :8686 --tls-cert tls.crt --tls-key tls.key
  postrider serve --config /etc/postrider.yaml --listen 10.0.0.7:8686 --behind-tls-proxy`,
		Args: program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.serve(cmd, flags, as, printCode)
		},
	}
	s := cmd.Flags()
	s.StringVar(&flags.Listen, "listen", "", "`address` of the server (default 127.0.0.1:8686)")
	s.StringVar(&flags.TLSCert, "tls-cert", "", "`file` with the certificate for TLS")
	s.StringVar(&flags.TLSKey, "tls-key", "", "`file` with its key")
	s.BoolVar(&flags.TLSProxy, "behind-tls-proxy", false, "a proxy in front of the server ends TLS")
	s.Var(program.Choice(&as), "role", "`role` of the printed link: viewer, operator or admin (default operator for SQLite, else viewer)")
	program.CompleteChoices(cmd, "role", as.Allowed())
	s.BoolVar(&printCode, "print-code", false, "print the link also if standard error is no terminal")
	return cmd
}

func (p commands) serve(cmd *cobra.Command, flags config.Admin, as role, printCode bool) error {
	c, logger, err := p.Load()
	if err != nil {
		return err
	}
	o := serving.Options{Admin: c.Admin, Version: program.ReadBuild().Version}
	o.Admin.Listen = cmp.Or(flags.Listen, c.Admin.Listen, "127.0.0.1:8686")
	if flags.TLSCert != "" || flags.TLSKey != "" {
		o.Admin.TLSCert, o.Admin.TLSKey = flags.TLSCert, flags.TLSKey
	}
	o.Admin.TLSProxy = flags.TLSProxy || c.Admin.TLSProxy
	if err := o.Check(); err != nil {
		return program.Usagef("%v", err)
	}
	s, err := p.SelectStore(c)
	if err != nil {
		return err
	}
	b, err := backend.Open(cmd.Context(), s, logger)
	if err != nil {
		return err
	}
	defer b.Close()
	others := backend.OthersOf(c, s, logger)
	defer others.Close()
	o.Others = others.Sources()
	o.Checks, o.Command, o.Publish = b.ConfiguredChecks(c, s), p.Complete, b.Publish
	o.Name, o.Principal = b.StoreName(s), admin.Principal{Subject: p.Operator(), Role: cmp.Or(admin.Role(as), serving.DefaultRole(b))}
	if _, terminal := p.Width(p.Stderr); terminal || printCode {
		o.PrintTo = p.Stderr
	}
	server, err := serving.Start(cmd.Context(), b, o, logger)
	if err != nil {
		return err
	}
	defer server.Close()
	if p.Listening != nil {
		p.Listening(server.Addr)
	}
	logger.Info("serving the administration", "url", server.URL, "store", b.Shown)
	return server.Wait(cmd.Context())
}
