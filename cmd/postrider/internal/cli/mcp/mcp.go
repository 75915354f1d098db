// Package mcp has the command "postrider mcp", which lets an agent ask about an outbox.
package mcp

import (
	"github.com/spf13/cobra"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/admin/web"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/cmd/postrider/internal/mcpserver"
	"github.com/postrider/postrider/cmd/postrider/internal/serving"
)

// Command returns the command.
func Command(p *program.Program) *cobra.Command { return commands{p}.command() }

// commands has the functions of the commands.
type commands struct{ *program.Program }

// role is the value of --role.
type role string

// Allowed lists the values.
func (role) Allowed() []string { return []string{"viewer", "operator"} }

func (p commands) command() *cobra.Command {
	as, url, demo := role("viewer"), "", false
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Let an agent ask about an outbox, through the Model Context Protocol",
		Long: `Answer an agent on standard input and output, through the Model Context Protocol. Its tools read: what is wrong, where a
message is, what failed and why. Payloads are hidden, causes are shown without numbers and identifiers, and
keys as admin.show shows them to viewers.

With --role operator, an agent can also plan a redrive. A person who is signed in to the web UI approves it; no command
does. MCP limits what an agent does through MCP. It does not limit an agent that has a shell and a password of the database.

postrider serve answers agents too, at /mcp, with a token of: postrider token create --agent

With --demo, the outbox is a new one in a temporary file. A shop and a broker in this process use it, and one more tool
breaks and corrects them. The address of its web UI, with a link to sign in, is printed to standard error.`,
		Example: `  postrider mcp --store sqlite:shop.db
  postrider mcp --config /etc/postrider.yaml --role operator --url https://ops.example.org
  postrider mcp --demo`,
		Args: program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !demo {
				return p.serve(cmd, admin.Role(as), url)
			}
			if p.StoreFlag != "" || url != "" || cmd.Flags().Changed("role") {
				return program.Usagef("--demo has a store, a web UI and the role operator of its own")
			}
			return p.demo(cmd.Context())
		},
	}
	cmd.Flags().Var(program.Choice(&as), "role", "`role` of the agent: viewer or operator")
	program.CompleteChoices(cmd, "role", as.Allowed())
	cmd.Flags().StringVar(&url, "url", "", "`URL` of the web UI, on whose pages people approve plans (default none)")
	cmd.Flags().BoolVar(&demo, "demo", false, "try it on an outbox made for it")
	return cmd
}

func (p commands) serve(cmd *cobra.Command, as admin.Role, url string) error {
	c, logger, err := p.Load()
	if err != nil {
		return err
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
	service := admin.New(b, admin.Config{
		Name: b.StoreName(s), Others: others.Sources(), Show: serving.Rules(c.Admin.Show), Checks: b.ConfiguredChecks(c, s), Command: p.Complete, Logger: logger,
	})
	reads, err := web.New(service, web.Config{Logger: logger})
	if err != nil {
		return err
	}
	agent := admin.Principal{Issuer: "os", Subject: p.Operator(), Role: as, Via: admin.ViaAgent}
	return mcpserver.New(service, reads, url, program.ReadBuild().Version).Serve(cmd.Context(), agent, p.Stdin, p.Stdout)
}
