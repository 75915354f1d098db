// Package token has the command "postrider token", which creates, lists and revokes access tokens of the administration.
package token

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
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
	return program.Group("token", "Create, list and revoke access tokens",
		`An access token signs a person in to the web UI, and a program to the HTTP API, with a role. It is shown once; the store
keeps its hash. Whoever can write to the table of access in the database can create tokens
(postrider migrate grants --role admin).`,
		p.createCommand(), p.listCommand(), p.revokeCommand())
}

// with calls f with the service of the selected store, as the user of the operating system.
func (p commands) with(cmd *cobra.Command, f func(*admin.Service, admin.Principal) error) error {
	return p.WithStore(cmd, func(b *backend.Outbox) error {
		return f(admin.New(b, admin.Config{}), admin.Principal{Issuer: "os", Subject: p.Operator(), Role: admin.Admin, Via: "cli"})
	})
}

func (p commands) createCommand() *cobra.Command {
	var name string
	var life time.Duration
	var agent bool
	var sagaRoles []string
	as := role("viewer")
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create an access token and write it to standard output",
		Example: `  postrider token create --name anna --role operator
  postrider token create --name ben --role viewer --saga-role finance
  postrider token create --name ci --role viewer --for 720h > token.txt
  postrider token create --name assistant --agent --for 24h`,
		Args: program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.with(cmd, func(s *admin.Service, me admin.Principal) error {
				use := admin.UsePeople
				if agent {
					use = admin.UseAgents
				}
				text, t, err := s.CreateToken(cmd.Context(), me, name, admin.Role(as), sagaRoles, use, life)
				if err != nil {
					return err
				}
				fmt.Fprintln(p.Stdout, text)
				fmt.Fprintf(p.Stderr, "postrider: token %s of %s (%s) is valid until %s; it cannot be shown again\n", t.ID, output.Printable(t.Name), t.Role,
					output.Moment(t.Expires))
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "`name` that appears on record (required)")
	cmd.Flags().Var(program.Choice(&as), "role", "`role`: viewer, operator or admin")
	program.CompleteChoices(cmd, "role", as.Allowed())
	cmd.Flags().StringArrayVar(&sagaRoles, "saga-role", nil, "`name` of a role that questions of sagas use, to answer them; can be repeated")
	cmd.Flags().BoolVar(&agent, "agent", false, "for an agent: it is valid for MCP only, and what it plans, a person approves")
	cmd.Flags().DurationVar(&life, "for", 90*24*time.Hour, "how long it is valid, as a `duration` of up to 366 days")
	if err := cmd.MarkFlagRequired("name"); err != nil {
		panic("postrider: " + err.Error())
	}
	return cmd
}

func (p commands) listCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the access tokens that have not expired",
		Example: `  postrider token list`,
		Args:    program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.with(cmd, func(s *admin.Service, me admin.Principal) error {
				tokens, err := s.Tokens(cmd.Context(), me)
				if err != nil {
					return err
				}
				t := output.NewTableUnless(asJSON, p.Stdout, "ID", "NAME", "ROLE", "SAGA ROLES", "EXPIRES", "STATE", "BY")
				for _, k := range tokens {
					if asJSON {
						if err := output.Line(p.Stdout, k); err != nil {
							return err
						}
						continue
					}
					t.Row(k.ID, k.Name, k.Role, strings.Join(k.SagaRoles, ", "), output.Moment(k.Expires), map[bool]string{true: "revoked", false: "valid"}[k.Revoked], k.By)
				}
				if asJSON || len(tokens) == 0 {
					return nil
				}
				return t.Flush()
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write one JSON object per line")
	return cmd
}

func (p commands) revokeCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "revoke ID",
		Short:   "Revoke an access token, and end the sessions that began with it",
		Example: `  postrider token revoke k3x9q2m7aa`,
		Args:    program.ExactArgs("the ID of a token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.with(cmd, func(s *admin.Service, me admin.Principal) error { return s.RevokeToken(cmd.Context(), me, args[0]) })
		},
	}
}
