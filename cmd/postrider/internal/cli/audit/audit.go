// Package audit has the command "postrider audit", which lists what operators did.
package audit

import (
	"fmt"
	"strings"

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

func (p commands) command() *cobra.Command {
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "List what operators did, the latest first: who, when, what and why",
		Long: `List what operators did through commands, the web UI, the HTTP API and agents, the latest first, with what was refused and
what failed. An action and its entry are one transaction: either both exist or neither does.

The last column has what an action was about, the reason, and the error of what failed or was refused. In the
table, long texts are shortened; --json has all of them.

Relays and consumers do their work without entries, and so does postrider maintain, which carries out the settings.`,
		Example: `  postrider audit
  postrider audit --limit 0 --json`,
		Args: program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return program.Usagef("--limit must not be negative, is %d", limit)
			}
			return p.WithStore(cmd, func(b *backend.Outbox) error { return p.list(cmd, b, limit, asJSON) })
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 20, "list at most `n`, 0 for all")
	cmd.Flags().BoolVar(&asJSON, "json", false, "write one JSON object per line")
	return cmd
}

// page is how many entries are read at a time.
const page = 200

func (p commands) list(cmd *cobra.Command, b *backend.Outbox, limit int, asJSON bool) error {
	t := output.NewTableUnless(asJSON, p.Stdout, "AT", "BY", "THROUGH", "ACTION", "COUNT", "RESULT", "ON, BECAUSE")
	// Whoever has the rights of this database role can read the keys anyway.
	service, n := admin.New(b, admin.Config{Show: []admin.Rule{{Type: "*", Keys: admin.Viewer}}}), 0
	for before, more := "", true; more; {
		size := page
		if limit > 0 {
			size = min(page, limit-n)
		}
		entries, next, err := service.Activity(cmd.Context(), p.Principal(""), before, size)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if asJSON {
				if err := output.Line(p.Stdout, e); err != nil {
					return err
				}
				continue
			}
			t.Row(output.Second(e.At), output.Shorten(e.By, 12), e.Via, e.Action, e.Count, e.Result, what(e))
		}
		n += len(entries)
		before, more = next, next != "" && (limit == 0 || n < limit)
	}
	if n == 0 {
		fmt.Fprintln(p.Stderr, "postrider: no actions")
		return nil
	}
	if t != nil {
		return t.Flush()
	}
	return nil
}

// what is what an entry was about, why, and what went wrong: one cell, so that a long one takes the room of a short one and the table
// fits.
func what(e admin.Entry) string {
	out := output.Shorten(e.On, 24)
	for _, text := range []string{e.Reason, e.Error} {
		if text != "" {
			out = strings.TrimPrefix(out+"; "+text, "; ")
		}
	}
	return out
}
