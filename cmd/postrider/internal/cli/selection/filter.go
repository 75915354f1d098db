package selection

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/store"
)

// Filter holds the flags that select dead letters.
type Filter struct {
	store.DeadFilter
	from, to string
	side     side
	command  *cobra.Command
}

// side is the value of --side.
type side string

// Allowed lists the values.
func (side) Allowed() []string { return []string{"relay", "consumer"} }

// Flags adds the flags to a command.
func (f *Filter) Flags(p *program.Program, cmd *cobra.Command) {
	f.command = cmd
	s := cmd.Flags()
	s.StringVar(&f.Relay, "relay", "", "only of this relay or consumer, by its `name`")
	p.CompleteFlag(cmd, "relay", program.Relays)
	s.Var(program.Choice(&f.side), "side", "only of this `side`: relay or consumer")
	program.CompleteChoices(cmd, "side", f.side.Allowed())
	s.StringVar(&f.Topic, "topic", "", "only of this `topic`")
	s.StringVar(&f.DeadFilter.Type, "type", "", "only messages of this `type`")
	s.StringVar(&f.Key, "key", "", "only messages with this `key`")
	s.StringVar(&f.Tenant, "tenant", "", "only messages of this `tenant`")
	s.StringVar(&f.Reason, "reason", "", "only those dead-lettered for this `reason`, as listed")
	s.StringVar(&f.Cause, "cause", "", "only those with this `text` in their cause")
	s.StringVar(&f.Fingerprint, "fingerprint", "", "only those with this `fingerprint` of the cause, see postrider dead counts")
	s.StringVar(&f.MessageID, "id", "", "only the message with this `ID`")
	s.StringVar(&f.from, "from", "", "dead-lettered at or after this `time`: RFC 3339, or how long ago (2h)")
	s.StringVar(&f.to, "to", "", "dead-lettered before this `time`: RFC 3339, or how long ago (30m)")
}

// Check validates the flags and arguments before anything is opened.
func (f *Filter) Check(args []string) error {
	var err error
	if f.Numbers, err = Numbers(args); err != nil {
		return err
	}
	f.Side = store.Kind(f.side)
	for flag, text := range map[string]string{"from": f.from, "to": f.to} {
		if _, err := program.ParseTime(flag, text, time.Time{}); err != nil {
			return err
		}
	}
	return nil
}

// given refuses flags with an empty value, which would select more than intended: a shell variable may be unset.
func (f *Filter) given() error {
	for _, name := range []string{"relay", "topic", "type", "key", "tenant", "reason", "cause", "fingerprint", "id", "from", "to"} {
		if flag := f.command.Flags().Lookup(name); flag.Changed && flag.Value.String() == "" {
			return program.Usagef("--%s is empty; leave it away to choose dead letters of any %[1]s", name)
		}
	}
	return nil
}

// Resolve completes the filter. Relative times are computed on the database's clock.
func (f *Filter) Resolve(ctx context.Context, b *backend.Outbox) (store.DeadFilter, error) {
	out := f.DeadFilter
	if f.from+f.to == "" {
		return out, nil
	}
	status, err := b.Status(ctx)
	if err != nil {
		return out, err
	}
	if out.From, err = program.ParseTime("from", f.from, status.Now); err != nil {
		return out, err
	}
	out.To, err = program.ParseTime("to", f.to, status.Now)
	return out, err
}

// chosen reports whether any flag narrows the selection.
func (f *Filter) chosen(args []string) bool {
	g := f.DeadFilter
	return len(args) > 0 || f.from != "" || f.to != "" ||
		g.Relay+g.Topic+g.Type+g.Key+g.Tenant+g.Reason+g.MessageID+g.Cause+g.Fingerprint+string(f.side) != ""
}

// Numbers reads the numbers of dead letters.
func Numbers(args []string) ([]int64, error) {
	var out []int64
	for _, a := range args {
		n, err := program.ParseInt(a)
		if err != nil || n < 1 {
			return nil, program.Usagef("%q is not the number of a dead letter; postrider dead list shows them", a)
		}
		out = append(out, n)
	}
	return out, nil
}
