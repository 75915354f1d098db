package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/relay"
)

func (p *Program) outboxCommand() *cobra.Command {
	return group("outbox", "Change an outbox as a whole",
		"Steps that concern an outbox as a whole. Each is one transaction: it is done, or nothing has changed.",
		p.outboxPartitionsCommand(), p.outboxForgetCommand())
}

func (p *Program) outboxPartitionsCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "partitions N",
		Short: "Change the number of partitions, keeping the order of every key",
		Long: `Change the number of partitions of an outbox, 1 to 1024, keeping the order of every key.

First let every relay deliver what there is while nothing is published (postrider status shows a backlog of 0), then stop
all relays and consumers. The step refuses as long as one of their processes is alive or a relay has undelivered
messages. Held keys, parked messages and dead letters may stay; they move along. Publishers need not be stopped: they wait
meanwhile, about a second for every 50,000 messages that the log still keeps, and then write for the new number. On
PostgreSQL run it as the role that ran postrider migrate up.

Afterwards start the relays and consumers again, and set partitions in the configuration, if it stands there, to N.`,
		Example: `  postrider outbox partitions 32 --store postgres://owner@db/shop
  postrider outbox partitions 32 --yes`,
		Args: exactArgs("a number N"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.Atoi(args[0])
			if err != nil || n < 1 || n > relay.MaxPartitions {
				return usagef("N must be a number from 1 to %d, is %q", relay.MaxPartitions, args[0])
			}
			return p.withStore(cmd, func(b *backend.Outbox) error { return p.repartition(cmd, b, n, yes) })
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (p *Program) repartition(cmd *cobra.Command, b *backend.Outbox, n int, yes bool) error {
	old, err := b.Partitions(cmd.Context())
	if err != nil {
		return err
	}
	if old == n {
		_, err := fmt.Fprintf(p.Stdout, "%s has %s already; nothing was done\n", b.Shown, plural(n, "partition"))
		return err
	}
	question := fmt.Sprintf("Change %s from %s to %d? Publishers wait meanwhile.", b.Shown, plural(old, "partition"), n)
	if err := p.confirm(yes, question); err != nil {
		return err
	}
	if err := b.Repartition(cmd.Context(), n); err != nil {
		return fmt.Errorf("%s: %w\nnothing has changed", b.Shown, err)
	}
	_, err = fmt.Fprintf(p.Stdout, "%s has %s now, before %d; start the relays and consumers again\n", b.Shown, plural(n, "partition"), old)
	return err
}

func (p *Program) outboxForgetCommand() *cobra.Command {
	var yes, discard bool
	var by, because string
	cmd := &cobra.Command{
		Use:   "forget RELAY",
		Short: "Remove a relay or consumer that is gone for good",
		Long: `Remove a relay or consumer that is gone for good. As long as the outbox knows a relay, it keeps every message that this
relay has not delivered, so the log grows without end if the relay no longer runs. What a removed relay has not delivered
it never will; other relays are not affected.

The step refuses while one of its processes is alive, and while it has held keys, parked messages or open dead letters:
decide about these first (postrider held, postrider dead), or give --discard, which records all of them as discarded dead
letters. A relay started later under this name starts over: it delivers again what the log still has.`,
		Example: `  postrider outbox forget to-old-broker --because 'switched off'
  postrider outbox forget to-old-broker --discard --because 'switched off' --yes`,
		Args: exactArgs("a RELAY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.withStore(cmd, func(b *backend.Outbox) error {
				return p.forgetRelay(cmd, b, args[0], decisionRecord{by, because}, discard, yes)
			})
		},
	}
	cmd.Flags().BoolVar(&discard, "discard", false, "discard its held keys, parked messages and open dead letters, on the record")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	byFlag(cmd, &by, p.operator())
	becauseFlag(cmd, &because)
	return cmd
}

// decisionRecord records who made a decision, and why.
type decisionRecord struct{ by, because string }

func (p *Program) forgetRelay(cmd *cobra.Command, b *backend.Outbox, name string, d decisionRecord, discard, yes bool) error {
	s, err := b.Status(cmd.Context())
	if err != nil {
		return err
	}
	var r relay.RelayStatus
	relays, err := chosenRelays(s.Relays, name)
	if err == nil {
		r = relays[0]
	} else if n, countErr := b.CountDead(cmd.Context(), deadletter.Filter{Relay: name, State: deadletter.AnyState}); n == 0 || countErr != nil {
		return errors.Join(err, countErr) // otherwise dead letters were imported for it
	}
	question := fmt.Sprintf("Forget relay %s (%s undelivered, which it will never deliver)?", printable(name), count(r.Backlog))
	if discard {
		question = fmt.Sprintf("Forget relay %s (%s undelivered, which it will never deliver) and discard %s parked messages and %s dead letters?",
			printable(name), count(r.Backlog), count(r.Parked), count(r.Dead))
	}
	if len(relays) == 0 {
		question = fmt.Sprintf("Forget relay %s, which has not run here, and discard what was imported for it and is not decided?", printable(name))
	}
	if err := p.confirm(yes, question); err != nil {
		return err
	}
	n, err := b.ForgetRelay(cmd.Context(), name, d.by, d.because, discard)
	if errors.Is(err, relay.ErrParked) {
		return fmt.Errorf("%w: see postrider held list --relay %s and postrider dead list --relay %[2]s, or give --discard; nothing has changed",
			err, shellQuote(name))
	}
	if err != nil {
		return fmt.Errorf("%s: %w; nothing has changed", b.Shown, err)
	}
	_, err = fmt.Fprintf(p.Stdout, "relay %s is forgotten; %s discarded\n", printable(name), plural(n, "message"))
	return err
}
