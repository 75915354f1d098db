// Package erase has the command "postrider erase", which removes what messages contain.
package erase

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/erasure"
	"github.com/postrider/postrider/held"
)

// Command returns the command.
func Command(p *program.Program) *cobra.Command { return commands{p}.command() }

// commands has the functions of the commands.
type commands struct{ *program.Program }

func (p commands) command() *cobra.Command {
	return program.Group("erase", "Erase the messages of a key or tenant, or one message, on the record",
		"An erasure removes what messages contain from the log, parked messages, dead letters and attempts. What was delivered\nbefore cannot be taken back.",
		p.messagesCommand(), p.resumeCommand(), p.listCommand())
}

// options are those of an erasure.
type options struct {
	erasure.Plan
	yes, dryRun, asJSON bool
}

// subjectFlags adds the flags that select messages.
func subjectFlags(cmd *cobra.Command, p *erasure.Plan, whose string) {
	s := cmd.Flags()
	s.StringVar(&p.Key, "key", "", whose+" with this `key`")
	s.StringVar(&p.Tenant, "tenant", "", whose+" of this `tenant`")
	s.StringVar(&p.MessageID, "id", "", whose+" with this message `ID`")
}

func (p commands) messagesCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "messages",
		Short: "Erase messages",
		Long: `Erase messages: of the log, only their places remain, which relays skip. Parked ones are removed, and their keys go on with
the next queued message. Dead letters are discarded and emptied, with their edits.

It covers what is committed when it begins: first stop what publishes about the person. It does not cover what brokers and
receivers have, backups, exported dead letters, message IDs, and the data of sagas; the manual lists all of it
(docs/operations/erasure.md). A relay that has such a message in memory reads its partition again, so what it was working on
there may be delivered twice.

Once it has ended, the record has a digest of the key, tenant or ID, not the value: erase list --key finds it. Interrupted,
it is listed as not ended, and erase resume does the rest. It needs the database rights of a relay.`,
		Example: `  postrider erase messages --key customer/42 --dry-run
  postrider erase messages --key customer/42 --because 'request 1217' --yes
  postrider erase messages --tenant acme --because 'contract ended'`,
		Args: program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return program.Usagef("%v", err)
			}
			return p.WithStore(cmd, func(b *backend.Outbox) error { return p.erase(cmd.Context(), b, o) })
		},
	}
	subjectFlags(cmd, &o.Plan, "messages")
	s := cmd.Flags()
	s.BoolVar(&o.dryRun, "dry-run", false, "only say how many it would be")
	s.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	s.BoolVar(&o.asJSON, "json", false, "write the erasure as JSON; the counts with --dry-run, or if none match")
	program.ByFlag(cmd, &o.By, p.Operator())
	program.BecauseFlag(cmd, &o.Reason)
	return cmd
}

func (p commands) erase(ctx context.Context, b *backend.Outbox, o *options) error {
	s := erasure.New(b)
	n, err := s.Count(ctx, o.Plan)
	if err != nil {
		return err
	}
	left, err := unfinished(ctx, s, o.Plan)
	if err != nil {
		return err
	}
	if n == (erasure.Erased{}) && !left || o.dryRun {
		if o.asJSON {
			return output.JSON(p.Stdout, n)
		}
		_, err := fmt.Fprintf(p.Stdout, "found %s; nothing was done\n", counted(n))
		return err
	}
	if err := p.Confirm(o.yes, fmt.Sprintf("Erase %s permanently?", counted(n))); err != nil {
		return err
	}
	var done erasure.Erasure
	err = p.Act(ctx, b, o.By, admin.Change{Action: "Erase", On: subject(o.Plan), Reason: o.Reason}, func(db held.Database) (err error) {
		done, err = erasure.New(db).Erase(ctx, o.Plan, nil)
		return err
	})
	return p.reportErasure(done, err, o.asJSON)
}

// unfinished reports whether an erasure of the plan's subject was interrupted.
func unfinished(ctx context.Context, s erasure.Store, plan erasure.Plan) (bool, error) {
	for e, err := range s.List(ctx) {
		if err != nil && e.ID == "" {
			return false, err
		}
		if err == nil && !e.Ended() && e.Of(plan) {
			return true, nil
		}
	}
	return false, nil
}

// reportErasure writes what was erased.
func (p commands) reportErasure(done erasure.Erasure, err error, asJSON bool) error {
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	switch {
	case err != nil && done.ID != "" && !done.Ended():
		return fmt.Errorf("%w; erased %s so far; for the rest: %s", err, counted(done.Erased), p.Hint("erase resume %s", done.ID))
	case err != nil:
		return err
	case asJSON:
		return output.JSON(p.Stdout, done)
	}
	_, err = fmt.Fprintf(p.Stdout, "erased %s; this is on record as %s\n", counted(done.Erased), done.ID)
	return err
}

func (p commands) resumeCommand() *cobra.Command {
	var by string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "resume ID",
		Short:   "Erase the rest of an erasure that was interrupted",
		Long:    "Erase what is left of an erasure that erase list shows as not ended.",
		Example: `  postrider erase resume 0190f3c2-8a4e-7d05-9d2b-0c5d1f6a7b88`,
		Args:    program.ExactArgs("the ID of an erasure"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.WithStore(cmd, func(b *backend.Outbox) error {
				var done erasure.Erasure
				c := admin.Change{Action: "ResumeErasure", On: args[0], Reason: "it was interrupted"}
				err := p.Act(cmd.Context(), b, by, c, func(db held.Database) (err error) {
					done, err = erasure.New(db).Resume(cmd.Context(), args[0], by, nil)
					return err
				})
				return p.reportErasure(done, err, asJSON)
			})
		},
	}
	p.CompleteArgs(cmd, 1, notEnded)
	cmd.Flags().BoolVar(&asJSON, "json", false, "write the erasure as JSON")
	program.ByFlag(cmd, &by, p.Operator())
	return cmd
}

// notEnded lists the IDs of erasures that have not ended.
func notEnded(ctx context.Context, b *backend.Outbox) (out []cobra.Completion, _ error) {
	for e, err := range erasure.New(b).List(ctx) {
		if err == nil && !e.Ended() {
			out = append(out, cobra.CompletionWithDesc(e.ID, output.Printable(e.Reason)))
		}
	}
	return out, nil
}

// subject says what is erased. Like the record of the erasure, it does not name the key, tenant or ID.
func subject(p erasure.Plan) string {
	switch {
	case p.Key != "":
		return "the messages of a key"
	case p.Tenant != "":
		return "the messages of a tenant"
	}
	return "one message"
}

// counted says what was counted, in words.
func counted(n erasure.Erased) string {
	return fmt.Sprintf("%s of the log, %s and %s", output.Plural(n.Logged, "message"), output.Plural(n.Parked, "parked message"),
		output.Plural(n.DeadLetters, "dead letter"))
}

func (p commands) listCommand() *cobra.Command {
	var limit int
	var asJSON bool
	of := erasure.Plan{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List erasures, the latest first",
		Example: `  postrider erase list
  postrider erase list --key customer/42`,
		Args: program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return program.Usagef("--limit must not be negative, is %d", limit)
			}
			if of != (erasure.Plan{}) {
				if err := of.Validate(); err != nil {
					return program.Usagef("%v", err)
				}
			}
			return p.WithStore(cmd, func(b *backend.Outbox) error { return p.list(cmd.Context(), b, of, limit, asJSON) })
		},
	}
	subjectFlags(cmd, &of, "only erasures of messages")
	cmd.Flags().IntVar(&limit, "limit", 20, "list at most `n`, 0 for all")
	cmd.Flags().BoolVar(&asJSON, "json", false, "write one JSON object per line")
	return cmd
}

func (p commands) list(ctx context.Context, b *backend.Outbox, of erasure.Plan, limit int, asJSON bool) error {
	t := output.NewTableUnless(asJSON, p.Stdout, "ID", "STARTED AT", "ENDED AT", "OF A", "LOG", "PARKED", "DEAD", "BY", "BECAUSE")
	n := 0
	for e, err := range erasure.New(b).List(ctx) {
		if err != nil && e.ID == "" {
			return err
		}
		if err != nil {
			fmt.Fprintf(p.Stderr, "postrider: %v\n", err)
			continue
		}
		if of != (erasure.Plan{}) && !e.Of(of) {
			continue
		}
		if n++; limit > 0 && n > limit {
			break
		}
		if asJSON {
			if err := output.Line(p.Stdout, e); err != nil {
				return err
			}
			continue
		}
		ended := "(not ended)"
		if e.Ended() {
			ended = output.Minute(e.EndedAt)
		}
		t.Row(e.ID, output.Minute(e.StartedAt), ended, string(e.Subject), output.Number(e.Logged), output.Number(e.Parked),
			output.Number(e.DeadLetters), e.By, e.Reason)
	}
	if n == 0 {
		fmt.Fprintln(p.Stderr, "postrider: no erasures")
		return nil
	}
	if t != nil {
		return t.Flush()
	}
	return nil
}
