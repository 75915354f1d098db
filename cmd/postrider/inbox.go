package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/relay"
)

func (p *Program) inboxCommand() *cobra.Command {
	return group("inbox", "Show how consumers are doing",
		`A consumer reads a broker and applies the effect of each message in a transaction of its database, exactly once. What it
cannot process stands among the held keys and dead letters, under its name.`,
		p.inboxStatusCommand())
}

func (p *Program) inboxStatusCommand() *cobra.Command {
	var name string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what consumers remember and what they have parked",
		Long: `Show each consumer with its processes, what it remembers (IDs of messages, and how old the oldest is; or watermarks of
ordered sources, and when each moved last) and its parked messages. IDs must be remembered for longer than the source can
redeliver a message and you can replay it. Each process counts the messages it processed and the duplicates it found
(Consumer.Stats). For the lag of a consumer ask the broker; for that of a relay with transactions, "postrider status".
In JSON, durations are in nanoseconds.`,
		Example: `  postrider inbox status
  postrider inbox status --consumer order-view --json`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withStore(cmd, func(b *backend.Outbox) error { return p.inboxStatus(cmd.Context(), b, name, asJSON) })
		},
	}
	cmd.Flags().StringVar(&name, "consumer", "", "only this consumer, by its `name`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return cmd
}

// consumerStatus is everything known about a consumer.
type consumerStatus struct {
	inbox.ConsumerStatus
	Parked       relay.Count   `json:"parked"`
	OldestParked time.Duration `json:"oldest_parked"`
	Held         relay.Count   `json:"held"`
	Dead         relay.Count   `json:"dead"`
	OldestDead   time.Duration `json:"oldest_dead"`
	Owners       []ownerJSON   `json:"owners"`
}

// consumerNames tells consumers from relays; relay.Status lists both.
type consumerNames map[string]bool

// title is the display name of a relay or consumer.
func (c consumerNames) title(name string) string {
	if c[name] {
		return "consumer " + printable(name)
	}
	return "relay " + printable(name)
}

// consumersIn returns the names of the consumers in a status.
func consumersIn(s relay.Status) consumerNames {
	out := make(consumerNames)
	for _, r := range s.Relays {
		if r.Kind == relay.KindConsumer {
			out[r.Name] = true
		}
	}
	return out
}

func (p *Program) inboxStatus(ctx context.Context, b *backend.Outbox, name string, asJSON bool) error {
	consumers, err := consumersOf(ctx, b, name)
	if err != nil {
		return err
	}
	if name != "" && len(consumers) == 0 {
		return &exitError{exitNo, fmt.Errorf("there is no consumer %q; it is known once it has run", name)}
	}
	if asJSON {
		return printJSON(p.Stdout, struct {
			Consumers []consumerStatus `json:"consumers"`
		}{consumers})
	}
	if len(consumers) == 0 {
		fmt.Fprintln(p.Stderr, "postrider: no consumer has run on this store")
		return nil
	}
	t := newTable(p.Stdout, "CONSUMER", "ALIVE", "REMEMBERS", "OLDEST", "PARKED", "OLDEST PARKED", "HELD", "DEAD", "OLDEST DEAD")
	for _, c := range consumers {
		t.row(c.Name, aliveOwners(c.Owners), remembers(c), ago(c.Oldest), count(c.Parked), ago(c.OldestParked),
			count(c.Held), count(c.Dead), ago(c.OldestDead))
	}
	if err := t.flush(); err != nil {
		return err
	}
	for _, c := range consumers {
		if len(c.Watermarks) == 0 {
			continue
		}
		fmt.Fprintf(p.Stdout, "\n%s has consumed\n", printable(c.Name))
		t := newTable(p.Stdout, "PARTITION", "EPOCH", "UP TO OFFSET", "MOVED")
		for _, w := range c.Watermarks {
			t.row(w.Partition, w.Epoch, number(w.Offset), ago(w.Moved)+" ago")
		}
		if err := t.flush(); err != nil {
			return err
		}
	}
	return nil
}

// consumersOf collects what the store knows about consumers.
func consumersOf(ctx context.Context, b *backend.Outbox, name string) ([]consumerStatus, error) {
	known, err := b.Consumers(ctx)
	if err != nil {
		return nil, err
	}
	status, err := b.Status(ctx)
	if err != nil {
		return nil, err
	}
	out := []consumerStatus{}
	for _, c := range known {
		if name != "" && c.Name != name {
			continue
		}
		st := consumerStatus{ConsumerStatus: c, Owners: []ownerJSON{}}
		if i := slices.IndexFunc(status.Relays, func(r relay.RelayStatus) bool { return r.Name == c.Name }); i >= 0 {
			r := status.Relays[i]
			st.Parked, st.Held, st.Dead, st.Owners = r.Parked, r.Held, r.Dead, ownersJSON(r.Owners)
			st.OldestParked, st.OldestDead = r.OldestParked, r.OldestDead
		}
		out = append(out, st)
	}
	return out, nil
}

func aliveOwners(owners []ownerJSON) string {
	n := 0
	for _, o := range owners {
		if o.Alive {
			n++
		}
	}
	return number(n)
}

func remembers(c consumerStatus) string {
	if len(c.Watermarks) > 0 {
		return plural(len(c.Watermarks), "watermark")
	}
	return count(c.Remembered) + " IDs"
}
