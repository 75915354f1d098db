package migrate

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

// grantee is the value of --role.
type grantee string

// Allowed lists the values.
func (grantee) Allowed() []string {
	return []string{"publisher", "relay", "consumer", "viewer", "operator", "admin"}
}

func (p commands) grantsCommand() *cobra.Command {
	var what grantee
	var to string
	cmd := &cobra.Command{
		Use:   "grants",
		Short: "Print the SQL that gives a database role the rights for its work",
		Long: `Print the SQL that gives a role of PostgreSQL, or an account of MySQL or MariaDB, the rights for its work and no others. Run
it as the owner of the tables, again after each migration. A role with several kinds of work gets several of them.

  publisher  publishes; reads no messages.
  relay      runs relays, with retention and redrives; can also publish, to move messages from partitions that do not exist.
  consumer   consumes with an inbox.
  viewer     sees status and dead letters, without payloads and headers.
  operator   the same, decides about held keys and parked messages, pauses relays, discards dead letters, starts redrives
             with --detach, and adds to the audit, which it cannot read. Whoever erases, purges or removes relays is also
             a relay.
  admin      the same, sees payloads and headers, edits dead letters, and keeps access and the audit: for postrider serve.`,
		Example: `  postrider migrate grants --store postgres://any --role relay --to shop_relay | psql shop
  postrider migrate grants --store mysql://any/shop --role operator --to ops@10.1.2.% | mysql shop`,
		Args: program.ExactArgs(),
		RunE: func(*cobra.Command, []string) error {
			c, _, err := p.Load()
			if err != nil {
				return err
			}
			s, err := p.SelectStore(c)
			if err != nil {
				return err
			}
			text, err := backend.Grants(s, string(what), to)
			if err != nil {
				return program.Usagef("%v", err)
			}
			_, err = io.WriteString(p.Stdout, text)
			return err
		},
	}
	cmd.Flags().Var(program.Choice(&what), "role", "the `work`: publisher, relay, consumer, viewer, operator or admin (required)")
	program.CompleteChoices(cmd, "role", what.Allowed())
	cmd.Flags().StringVar(&to, "to", "", "`name` of the role, or of the account, in the database (required)")
	for _, name := range []string{"role", "to"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic("postrider: " + err.Error())
		}
	}
	return cmd
}
