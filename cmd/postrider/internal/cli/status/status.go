// Package status has the command "postrider status", which shows how relays are doing.
package status

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/internal/logreader"
	"github.com/postrider/postrider/store"
)

// statusOptions are the options of status.
type statusOptions struct {
	relay             string
	json, details     bool
	watch             time.Duration
	maxAge, maxParked time.Duration
	maxDead, maxHeld  int64
	maxUnrouted       int64
	given             func(flag string) bool
}

// Command returns the command.
func Command(p *program.Program) *cobra.Command { return commands{p}.command() }

// commands has the functions of the commands.
type commands struct{ *program.Program }

func (p commands) command() *cobra.Command {
	var o statusOptions
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how the relays are doing",
		Long: `Show the status of each relay as the web UI does, with backlog, age of the oldest undelivered message, parked
messages, held keys and dead letters, and who works on which partition. A status of Behind means that the oldest
undelivered message is older than a minute, Holding that it holds keys and everything else is on
time. Whether attempts fail takes two readings, so only the web UI shows Failing.

Its cost does not grow with the backlog; counts above 10,000 are written 10,000+,
and --max-dead and --max-held go up to 10,000. The sizes of the tables are those that the database reports without
reading them: of SQLite only that of its file, of MySQL those of up to a day ago.

A message that no relay takes is skipped by all of them and counted as unrouted, by topic;
the count is kept for a week after the
last message of the topic.

With a limit (--max-age, --max-parked, --max-dead, --max-held, --max-unrouted) the command ends with exit code 3
when a relay is above it, for monitoring without metrics. Parked messages wait for a held key, for another attempt or
for their delivery time, and do not count for --max-age; --max-parked is for them, and should be longer than any delay
that you publish with. What a paused relay has not delivered counts for neither. In JSON, fields that end in _seconds
are durations in seconds.`,
		Example: `  postrider status --store sqlite:shop.db
  postrider status --details --relay to-nats
  postrider status --watch
  postrider status --json | jq '.relays[] | {name, backlog}'
  postrider status --max-age 1m --max-parked 1h --max-dead 0 --max-unrouted 0 || page-somebody`,
		Args: program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.given = cmd.Flags().Changed
			if err := o.check(); err != nil {
				return err
			}
			return p.WithStore(cmd, func(b *backend.Outbox) error { return p.status(cmd.Context(), b, o) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.relay, "relay", "", "only this relay, by its `name`")
	p.CompleteFlag(cmd, "relay", program.Relays)
	f.BoolVar(&o.json, "json", false, "write JSON")
	f.BoolVar(&o.details, "details", false, "also show partitions and processes")
	f.DurationVarP(&o.watch, "watch", "w", 0, "show again every `interval` until interrupted (2s when none is given)")
	f.Lookup("watch").NoOptDefVal = "2s"
	f.DurationVar(&o.maxAge, "max-age", 0, "exit with 3 when an undelivered message that is not parked is older than this `duration`")
	f.DurationVar(&o.maxParked, "max-parked", 0, "exit with 3 when a message has been parked for longer than this `duration`")
	f.Int64Var(&o.maxDead, "max-dead", 0, "exit with 3 when a relay has more than `n` open dead letters")
	f.Int64Var(&o.maxHeld, "max-held", 0, "exit with 3 when a relay has more than `n` held keys")
	f.Int64Var(&o.maxUnrouted, "max-unrouted", 0, "exit with 3 when more than `n` messages of a topic were unrouted")
	return cmd
}

// check validates the options before anything is opened.
func (o statusOptions) check() error {
	switch {
	case o.watch < 0:
		return program.Usagef("--watch must be positive, is %s", o.watch)
	case o.maxAge < 0:
		return program.Usagef("--max-age must not be negative, is %s; for no limit leave it out", o.maxAge)
	case o.maxParked < 0:
		return program.Usagef("--max-parked must not be negative, is %s; for no limit leave it out", o.maxParked)
	case o.maxDead < 0:
		return program.Usagef("--max-dead must not be negative, is %d; for no limit leave it out", o.maxDead)
	case o.maxHeld < 0:
		return program.Usagef("--max-held must not be negative, is %d; for no limit leave it out", o.maxHeld)
	case o.maxUnrouted < 0:
		return program.Usagef("--max-unrouted must not be negative, is %d; for no limit leave it out", o.maxUnrouted)
	case o.maxDead > store.CountLimit || o.maxHeld > store.CountLimit:
		return program.Usagef("--max-dead and --max-held go up to %s: beyond, a status does not count", output.Number(store.CountLimit))
	}
	return nil
}

// status shows the state once, or repeatedly.
func (p commands) status(ctx context.Context, b *backend.Outbox, o statusOptions) error {
	if o.watch == 0 {
		s, consumers, err := p.readStatus(ctx, b, o)
		if err != nil {
			return err
		}
		if err := p.showStatus(b, s, consumers, o); err != nil {
			return err
		}
		waiting, err := o.waiting(ctx, b, s)
		if err != nil {
			return err
		}
		return o.judge(s, consumers, waiting)
	}
	_, live := p.Width(p.Stdout)
	for first := true; ; first = false {
		s, consumers, err := p.readStatus(ctx, b, o)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return err
		case err != nil: // perhaps a restart of the database, which the operator watches
			fmt.Fprintf(p.Stderr, "postrider: %v; looking on\n", err)
		default:
			if live && !o.json {
				fmt.Fprint(p.Stdout, "\x1b[H\x1b[2J")
			}
			if err := p.showStatus(b, s, consumers, o); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(o.watch):
		}
	}
}

// readStatus reads the status of the requested relays, and which of them are consumers.
func (p commands) readStatus(ctx context.Context, b *backend.Outbox, o statusOptions) (store.Status, program.ConsumerNames, error) {
	s, err := b.Status(ctx)
	if err != nil {
		return s, nil, fmt.Errorf("read the status of %s: %w", b.Shown, err)
	}
	consumers := program.Consumers(s)
	s.Relays, err = program.ChosenRelays(s.Relays, o.relay)
	return s, consumers, err
}

// waiting returns the age of the oldest message of an outbox on which no relay has run, if --max-age asks for it.
func (o statusOptions) waiting(ctx context.Context, b *backend.Outbox, s store.Status) (time.Duration, error) {
	if !o.given("max-age") || s.HasRelay() || o.relay != "" {
		return 0, nil
	}
	oldest, err := logreader.Oldest(ctx, b)
	if err != nil {
		return 0, fmt.Errorf("read the log of %s: %w", b.Shown, err)
	}
	if oldest == nil {
		return 0, nil
	}
	return s.Now.Sub(oldest.CreatedAt), nil
}

func (p commands) showStatus(b *backend.Outbox, s store.Status, consumers program.ConsumerNames, o statusOptions) error {
	if o.json && o.watch > 0 {
		return output.Line(p.Stdout, forJSON(s))
	}
	if o.json {
		return output.JSON(p.Stdout, forJSON(s))
	}
	return p.writeStatus(b.Shown, s, consumers, o.details)
}
