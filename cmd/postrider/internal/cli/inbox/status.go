// Package inbox has the command "postrider inbox", which shows how consumers are doing.
package inbox

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/status"
	"github.com/postrider/postrider/store"
)

// Command returns the command.
func Command(p *program.Program) *cobra.Command { return commands{p}.command() }

// commands has the functions of the commands.
type commands struct{ *program.Program }

func (p commands) command() *cobra.Command {
	return program.Group("inbox", "Show how consumers are doing",
		`A consumer reads a broker and applies the effect of each message in a transaction of its database, exactly once. What it
cannot process stands among the held keys and dead letters, under its name.`,
		p.inboxStatusCommand())
}

func (p commands) inboxStatusCommand() *cobra.Command {
	var name string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what consumers remember and what they have parked",
		Long: `Show each consumer with its processes, what it remembers (IDs of messages, and how old the oldest is; or watermarks that
an earlier version has left), its positions in the logs that it reads in order, and its parked messages. A
position has the lag (offsets of the log beyond it), and how many offsets the broker's retention removed before they were
read, with the last range: publish those again if they matter. IDs must be remembered for longer than the source can
redeliver a message and you can replay it. Each process counts the messages it processed and the duplicates it found
(Consumer.Stats). For the lag of a consumer ask the broker; for that of a relay with transactions, "postrider status".
In JSON, fields that end in _seconds are durations in seconds.`,
		Example: `  postrider inbox status
  postrider inbox status --consumer order-view --json`,
		Args: program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.WithStore(cmd, func(b *backend.Outbox) error { return p.inboxStatus(cmd.Context(), b, name, asJSON) })
		},
	}
	cmd.Flags().StringVar(&name, "consumer", "", "only this consumer, by its `name`")
	p.CompleteFlag(cmd, "consumer", program.ConsumersOnly)
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return cmd
}

// consumerStatus is everything known about a consumer, in its JSON form.
type consumerStatus struct {
	Name         string         `json:"name"`
	Remembered   store.Count    `json:"remembered"`
	Oldest       output.Seconds `json:"oldest_seconds"`
	Watermarks   []watermark    `json:"watermarks,omitempty"`
	Positions    []position     `json:"positions,omitempty"`
	Parked       store.Count    `json:"parked"`
	OldestParked output.Seconds `json:"oldest_parked_seconds"`
	Held         store.Count    `json:"held"`
	Dead         store.Count    `json:"dead"`
	OldestDead   output.Seconds `json:"oldest_dead_seconds"`
	Owners       []status.Owner `json:"owners"`
}

// watermark is the JSON form of store.WatermarkStatus.
type watermark struct {
	Partition   string         `json:"partition"`
	Incarnation string         `json:"incarnation"`
	Offset      int64          `json:"offset"`
	Moved       output.Seconds `json:"moved_seconds"`
}

// position is the JSON form of store.LogPosition.
type position struct {
	Partition   string         `json:"partition"`
	Incarnation string         `json:"incarnation"`
	Offset      int64          `json:"offset"`
	Lag         int64          `json:"lag"` // -1: more than none
	Moved       output.Seconds `json:"moved_seconds"`
	Replaced    int64          `json:"replaced,omitempty"`
	Missing     int64          `json:"missing,omitempty"`
	MissingFrom int64          `json:"missing_from,omitempty"`
	MissingTo   int64          `json:"missing_to,omitempty"`
}

func (p commands) inboxStatus(ctx context.Context, b *backend.Outbox, name string, asJSON bool) error {
	consumers, err := consumersOf(ctx, b, name)
	if err != nil {
		return err
	}
	if name != "" && len(consumers) == 0 {
		return program.Exit(program.ExitNo, fmt.Errorf("there is no consumer %q; it is known once it has run", name))
	}
	if asJSON {
		return output.JSON(p.Stdout, struct {
			Consumers []consumerStatus `json:"consumers"`
		}{consumers})
	}
	if len(consumers) == 0 {
		fmt.Fprintln(p.Stderr, "postrider: no consumer has run on this store")
		return nil
	}
	t := output.NewTable(p.Stdout, "CONSUMER", "REMEMBERS", "OLDEST ID", "HELD", "PARKED", "PARKED FOR", "DEAD", "DEAD FOR", "PROCESSES")
	for _, c := range consumers {
		t.Row(c.Name, remembers(c), output.Ago(time.Duration(c.Oldest)), output.Count(c.Held), output.Count(c.Parked), output.Ago(time.Duration(c.OldestParked)),
			output.Count(c.Dead), output.Ago(time.Duration(c.OldestDead)), aliveOwners(c.Owners))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, c := range consumers {
		if err := p.showPositions(c); err != nil {
			return err
		}
		if len(c.Watermarks) == 0 {
			continue
		}
		fmt.Fprintf(p.Stdout, "\n%s has consumed\n", output.Printable(c.Name))
		t := output.NewTable(p.Stdout, "PARTITION", "INCARNATION", "UP TO OFFSET", "MOVED")
		for _, w := range c.Watermarks {
			t.Row(w.Partition, w.Incarnation, output.Number(w.Offset), output.Since(time.Duration(w.Moved)))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	for _, c := range consumers {
		if readsInVain(c) {
			fmt.Fprintf(p.Stdout, "\n%s: it has read all that its source has, and remembers no message; if there should be some, see whether its stream and "+
				"topics are spelled as those of the publisher. To remove what it has read of the wrong ones, stop it and run: %s\n",
				output.Printable(c.Name), p.Hint("outbox remove %s --because \"…\"", output.ShellQuote(c.Name)))
		}
	}
	return nil
}

// readsInVain reports whether a consumer has read its logs to the end and has kept nothing of a message.
func readsInVain(c consumerStatus) bool {
	return len(c.Positions) > 0 && len(c.Watermarks) == 0 && c.Remembered.N+c.Parked.N+c.Held.N+c.Dead.N == 0 &&
		!slices.ContainsFunc(c.Positions, func(p position) bool { return p.Lag != 0 })
}

// showPositions shows the positions of a consumer in the logs that it reads.
func (p commands) showPositions(c consumerStatus) error {
	if len(c.Positions) == 0 {
		return nil
	}
	fmt.Fprintf(p.Stdout, "\n%s has read\n", output.Printable(c.Name))
	t := output.NewTable(p.Stdout, "PARTITION", "UP TO OFFSET", "LAG", "MOVED", "LOG REPLACED", "MISSING", "LAST MISSING")
	for _, at := range c.Positions {
		last := ""
		if at.MissingTo > 0 {
			last = output.Number(at.MissingFrom) + " to " + output.Number(at.MissingTo)
		}
		lag := output.Number(at.Lag)
		if at.Lag < 0 {
			lag = "some"
		}
		t.Row(at.Partition, output.Number(at.Offset), lag, output.Since(time.Duration(at.Moved)),
			output.Number(at.Replaced), output.Number(at.Missing), last)
	}
	return t.Flush()
}

// consumersOf collects what the store knows about consumers.
func consumersOf(ctx context.Context, b *backend.Outbox, name string) ([]consumerStatus, error) {
	known, err := b.Consumers(ctx)
	if err != nil {
		return nil, err
	}
	all, err := b.Status(ctx)
	if err != nil {
		return nil, err
	}
	out := []consumerStatus{}
	for _, c := range known {
		if name != "" && c.Name != name {
			continue
		}
		st := consumerStatus{Name: c.Name, Remembered: c.Remembered, Oldest: output.Seconds(c.Oldest), Owners: []status.Owner{}}
		for _, w := range c.Watermarks {
			st.Watermarks = append(st.Watermarks, watermark{w.Partition, w.Incarnation, w.Offset, output.Seconds(w.Moved)})
		}
		for i := range c.Positions {
			at := &c.Positions[i]
			if !at.IsCurrent(c.Positions) {
				continue
			}
			st.Positions = append(st.Positions, position{
				at.Partition, at.Incarnation, at.Offset, at.Lag(), output.Seconds(at.Moved), at.Replaced, at.Missing, at.MissingFrom, at.MissingTo,
			})
		}
		if i := slices.IndexFunc(all.Relays, func(r store.RelayStatus) bool { return r.Name == c.Name }); i >= 0 {
			r := all.Relays[i]
			st.Parked, st.Held, st.Dead, st.Owners = r.Parked, r.Held, r.Dead, status.Owners(r.Owners)
			st.OldestParked, st.OldestDead = output.Seconds(r.OldestParked), output.Seconds(r.OldestDead)
		}
		out = append(out, st)
	}
	return out, nil
}

func aliveOwners(owners []status.Owner) string {
	n := 0
	for _, o := range owners {
		if o.Alive {
			n++
		}
	}
	return output.Number(n)
}

func remembers(c consumerStatus) string {
	if len(c.Watermarks) > 0 {
		return output.Plural(len(c.Watermarks), "watermark")
	}
	return output.Count(c.Remembered) + " IDs"
}
