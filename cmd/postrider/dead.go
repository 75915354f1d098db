package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/inbox"
)

func (p *Program) deadCommand() *cobra.Command {
	return group("dead", "List, inspect, repair, redrive and discard dead letters",
		`A dead letter is the record of a message that a relay or consumer no longer tries: the message, its attempts and their
errors. It stays until you send the message back (redrive) or discard it; dead letters do not expire.
See docs/operations/dead-letters.md.`,
		p.deadListCommand(), p.deadCountsCommand(), p.deadShowCommand(), p.deadEditCommand(), p.deadRedriveCommand(),
		p.deadDiscardCommand(), p.deadExportCommand(), p.deadImportCommand())
}

// deadFilter holds the flags that select dead letters.
type deadFilter struct {
	deadletter.Filter
	from, to string
	side     deadSide
	command  *cobra.Command
}

// deadSide is the value of --side.
type deadSide string

// Allowed lists the values.
func (deadSide) Allowed() []string { return []string{"relay", "consumer"} }

// flags adds the flags to a command.
func (f *deadFilter) flags(cmd *cobra.Command) {
	f.command = cmd
	s := cmd.Flags()
	s.StringVar(&f.Relay, "relay", "", "only of this relay or consumer, by its `name`")
	s.Var(choice(&f.side), "side", "only of this `side`: relay or consumer")
	completeChoices(cmd, "side", f.side.Allowed())
	s.StringVar(&f.Topic, "topic", "", "only of this `topic`")
	s.StringVar(&f.Filter.Type, "type", "", "only messages of this `type`")
	s.StringVar(&f.Key, "key", "", "only messages with this `key`")
	s.StringVar(&f.Tenant, "tenant", "", "only messages of this `tenant`")
	s.StringVar(&f.Reason, "reason", "", "only those dead-lettered for this `reason`, as listed")
	s.StringVar(&f.Cause, "cause", "", "only those with this `text` in their cause")
	s.StringVar(&f.Fingerprint, "fingerprint", "", "only those with this `fingerprint` of the cause, see postrider dead counts")
	s.StringVar(&f.MessageID, "id", "", "only the message with this `ID`")
	s.StringVar(&f.from, "from", "", "dead-lettered at or after this `time`: RFC 3339, or how long ago (2h)")
	s.StringVar(&f.to, "to", "", "dead-lettered before this `time`: RFC 3339, or how long ago (30m)")
}

// check validates the flags and arguments before anything is opened.
func (f *deadFilter) check(args []string) error {
	var err error
	if f.Numbers, err = numbers(args); err != nil {
		return err
	}
	f.Side = deadletter.Side(f.side)
	for flag, text := range map[string]string{"from": f.from, "to": f.to} {
		if _, err := parseMoment(flag, text, time.Time{}); err != nil {
			return err
		}
	}
	return nil
}

// given refuses flags with an empty value, which would select more than intended: a shell variable may be unset.
func (f *deadFilter) given() error {
	for _, name := range []string{"relay", "topic", "type", "key", "tenant", "reason", "cause", "fingerprint", "id", "from", "to"} {
		if flag := f.command.Flags().Lookup(name); flag.Changed && flag.Value.String() == "" {
			return usagef("--%s is empty; leave it away to choose dead letters of any %[1]s", name)
		}
	}
	return nil
}

// filter completes the filter. Relative times are computed on the database's clock.
func (f *deadFilter) filter(ctx context.Context, b *backend.Outbox) (deadletter.Filter, error) {
	out := f.Filter
	if f.from+f.to == "" {
		return out, nil
	}
	status, err := b.Status(ctx)
	if err != nil {
		return out, err
	}
	if out.From, err = parseMoment("from", f.from, status.Now); err != nil {
		return out, err
	}
	out.To, err = parseMoment("to", f.to, status.Now)
	return out, err
}

// chosen reports whether any flag narrows the selection.
func (f *deadFilter) chosen(args []string) bool {
	g := f.Filter
	return len(args) > 0 || f.from != "" || f.to != "" ||
		g.Relay+g.Topic+g.Type+g.Key+g.Tenant+g.Reason+g.MessageID+g.Cause+g.Fingerprint+string(f.side) != ""
}

// numbers reads the numbers of dead letters.
func numbers(args []string) ([]int64, error) {
	var out []int64
	for _, a := range args {
		n, err := parseInt(a)
		if err != nil || n < 1 {
			return nil, usagef("%q is not the number of a dead letter; postrider dead list shows them", a)
		}
		out = append(out, n)
	}
	return out, nil
}

// parseMoment reads a point in time: RFC 3339, a date, or how long before now.
func parseMoment(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usagef("--%s %s is not a time; write 2026-01-31T15:04:05Z, 2026-01-31, or how long ago, e.g. 2h", flag, text)
}

func (p *Program) deadListCommand() *cobra.Command {
	var f deadFilter
	var after int64
	var limit int
	var asJSON bool
	state := deadState("open")
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, oldest first",
		Example: `  postrider dead list
  postrider dead list --relay to-nats --topic orders --from 24h
  postrider dead list --side consumer --cause 'unique constraint'
  postrider dead list --state any --key order/42
  postrider dead list --limit 0 --json > dead.ndjson`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(nil); err != nil {
				return err
			}
			if limit < 0 {
				return usagef("--limit must not be negative, is %d", limit)
			}
			f.State = deadletter.State(state)
			return p.withStore(cmd, func(b *backend.Outbox) error {
				filter, err := f.filter(cmd.Context(), b)
				if err != nil {
					return err
				}
				return p.listDead(cmd.Context(), b, filter, after, limit, asJSON)
			})
		},
	}
	f.flags(cmd)
	cmd.Flags().Var(choice(&state), "state", "only in this `state`: open, redriven, discarded or any")
	completeChoices(cmd, "state", state.Allowed())
	cmd.Flags().Int64Var(&f.Redrive, "redrive", 0, "only what the redrive with this `ID` has sent back, with --state any")
	cmd.Flags().Int64Var(&after, "after", 0, "continue after this `number`")
	cmd.Flags().IntVar(&limit, "limit", 100, "list at most `n`, 0 for all")
	cmd.Flags().BoolVar(&asJSON, "json", false, "write one JSON object per line")
	return cmd
}

// deadState is the value of --state.
type deadState string

// Allowed lists the values.
func (deadState) Allowed() []string { return []string{"open", "redriven", "discarded", "any"} }

func (p *Program) listDead(ctx context.Context, b *backend.Outbox, f deadletter.Filter, after int64, limit int, asJSON bool) error {
	t := newTableUnless(asJSON, p.Stdout, "NUMBER", "DIED AT", "RELAY", "TOPIC", "TYPE", "KEY", "ATTEMPTS", "STATE", "REASON", "CAUSE")
	n, last := 0, int64(0)
	more := false
	for l, err := range b.ListDead(ctx, f, after, onemore(limit)) {
		if err != nil {
			return err
		}
		if limit > 0 && n == limit {
			more = true
			break
		}
		n, last = n+1, l.Number
		if asJSON {
			if err := printLine(p.Stdout, l); err != nil {
				return err
			}
			continue
		}
		t.row(l.Number, moment(l.DiedAt), l.Relay, l.Message.Topic, l.Message.Type, l.Message.Key, l.Attempts, l.State, l.Reason,
			shorten(l.Cause, 60))
	}
	if t != nil && n > 0 {
		if err := t.flush(); err != nil {
			return err
		}
	}
	switch {
	case more:
		fmt.Fprintf(p.Stderr, "postrider: there are more; go on with --after %d, or --limit 0 for all\n", last)
	case n == 0:
		if err := mistyped(ctx, b, f); err != nil {
			return err
		}
		fmt.Fprintln(p.Stderr, "postrider: no dead letters match")
	}
	return nil
}

// ownReasons are the reasons that relays, consumers and publishers set; handlers set others.
var ownReasons = []string{
	inbox.AttemptsExhausted, postrider.Undecodable, inbox.UnknownSchemaVersion, inbox.VersionGap,
	"too large for the broker", "too large for the receiver", "refused by the receiver",
}

// mistyped is called when a filter matches nothing: it returns an error if the filter names an unknown relay, consumer or
// reason.
func mistyped(ctx context.Context, b *backend.Outbox, f deadletter.Filter) error {
	if f.Relay != "" {
		n, err := b.CountDead(ctx, deadletter.Filter{Relay: f.Relay, State: deadletter.AnyState})
		if err == nil && n == 0 {
			err = knownRelay(ctx, b, f.Relay)
		}
		if err != nil {
			return err
		}
	}
	if f.Reason == "" || slices.Contains(ownReasons, f.Reason) {
		return nil
	}
	n, err := b.CountDead(ctx, deadletter.Filter{Reason: f.Reason, State: deadletter.AnyState})
	if err != nil || n > 0 {
		return err
	}
	counts, err := b.CountCauses(ctx, deadletter.Filter{State: deadletter.AnyState}, 100)
	if err != nil {
		return err
	}
	known := slices.Clone(ownReasons)
	for _, c := range counts {
		known = append(known, c.Reason)
	}
	slices.Sort(known)
	return fmt.Errorf("no message has died for the reason %q here; those that there are, or may be: %s", f.Reason,
		printable(strings.Join(slices.Compact(known), ", ")))
}

// knownRelay returns an error, listing the known names, if the store has no relay or consumer of this name.
func knownRelay(ctx context.Context, b *backend.Outbox, name string) error {
	status, err := b.Status(ctx)
	if err != nil {
		return err
	}
	var known []string
	for _, r := range status.Relays {
		known = append(known, r.Name)
	}
	if slices.Contains(known, name) {
		return nil
	}
	slices.Sort(known)
	return fmt.Errorf("there is no relay or consumer %q in this store; it has %s", name,
		cmp.Or(printable(strings.Join(slices.Compact(known), ", ")), "none yet: one appears when it first runs"))
}

// onemore requests one more than the limit, to know whether there are more.
func onemore(limit int) int {
	if limit == 0 {
		return 0
	}
	return limit + 1
}
