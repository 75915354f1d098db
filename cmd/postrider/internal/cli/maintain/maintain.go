// Package maintain has the command "postrider maintain", which maintains the log where no relay does.
package maintain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/retention"
	"github.com/postrider/postrider/store"
)

// Command returns the command.
func Command(p *program.Program) *cobra.Command { return commands{p}.command() }

// commands has the functions of the commands.
type commands struct{ *program.Program }

const (
	// defaultKeep and defaultKeepRedrives are those of relays.
	defaultKeep         = 24 * time.Hour
	defaultKeepRedrives = 30 * 24 * time.Hour
	minEvery            = time.Second
)

// options are those of the maintenance.
type options struct {
	every, keep  time.Duration
	withoutRelay bool
	asJSON       bool
}

func (p commands) command() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "maintain",
		Short: "Drop what is past retention, and prepare space, as relays do",
		Long: `Drop delivered messages and ended redrives that are past retention, and prepare space for new messages. Relays do this once
a minute; run the command where none runs: once, e.g. by cron, or with --every until it is interrupted. It uses the store's
settings keep_delivered, keep_topics, max_log_bytes and keep_redrives.

What a registered relay has not delivered is never dropped. Without any relay, nothing is dropped, unless --without-relay
says that something else reads the log, e.g. change data capture: then messages are dropped by their age alone.

A legal hold (postrider legal-hold) keeps everything.`,
		Example: `  postrider maintain --store postgres://db/shop
  postrider maintain --every 1m --without-relay --keep-delivered 168h --store postgres://db/shop`,
		Args: program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.every != 0 && o.every < minEvery {
				return program.Usagef("--every must be %s or longer, is %s", minEvery, o.every)
			}
			return p.WithStoreOf(cmd, func(b *backend.Outbox, s config.Store, logger *slog.Logger) error {
				return p.maintain(cmd.Context(), b, o.config(cmd, s), o, logger)
			})
		},
	}
	s := cmd.Flags()
	s.DurationVar(&o.every, "every", 0, "go on, once per `interval` (default once)")
	s.DurationVar(&o.keep, "keep-delivered", 0, "keep delivered messages for this `duration` (default that of the store's settings, else 24h)")
	s.BoolVar(&o.withoutRelay, "without-relay", false, "drop messages by their age while no relay is registered")
	s.BoolVar(&o.asJSON, "json", false, "write what was done as JSON")
	return cmd
}

// config returns how long things are kept.
func (o *options) config(cmd *cobra.Command, s config.Store) retention.Config {
	c := retention.Config{
		For: defaultKeep, Topics: s.Kept(), MaxBytes: int64(s.MaxLogBytes), Redrives: cmp.Or(s.KeepRedrives, defaultKeepRedrives),
		WithoutRelay: o.withoutRelay,
	}
	if s.KeepDelivered != nil {
		c.For = *s.KeepDelivered
	}
	if cmd.Flags().Changed("keep-delivered") {
		c.For = o.keep
	}
	return c
}

func (p commands) maintain(ctx context.Context, b *backend.Outbox, c retention.Config, o *options, logger *slog.Logger) error {
	s, ok := b.Store.(retention.Store)
	if !ok {
		return fmt.Errorf("%s needs no maintenance", b.Shown)
	}
	keeper, err := retention.New(s, c)
	if err != nil {
		return program.Usagef("%v", err)
	}
	for {
		done, err := keeper.Maintain(ctx)
		switch {
		case ctx.Err() != nil && o.every > 0:
			return nil
		case err != nil && o.every == 0:
			return err
		case err != nil:
			logger.Warn("maintenance failed and will be tried again", "error", err)
		default:
			if err := p.report(done, o.asJSON); err != nil {
				return err
			}
		}
		if o.every == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(o.every):
		}
	}
}

// report writes what was done.
func (p commands) report(done store.Maintained, asJSON bool) error {
	if asJSON {
		return output.Line(p.Stdout, struct {
			Dropped  int64  `json:"dropped"`
			Deferred string `json:"deferred,omitempty"`
		}{done.Dropped, done.Deferred})
	}
	_, err := fmt.Fprintf(p.Stdout, "dropped %s\n", output.Plural(done.Dropped, "message"))
	if done.Deferred != "" {
		_, other := fmt.Fprintf(p.Stdout, "put off: %s\n", output.Printable(done.Deferred))
		err = errors.Join(err, other)
	}
	return err
}
