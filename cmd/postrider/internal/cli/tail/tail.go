// Package tail has the command "postrider tail", which follows the log.
package tail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/internal/logreader"
)

// tailPoll is how often tail polls for new messages of other processes.
const tailPoll = 200 * time.Millisecond

// tailOptions are the options of tail.
type tailOptions struct {
	from             string
	topic, key, kind string
	tenant           string
	json, stop       bool
	limit            int64
}

// Command returns the command.
func Command(p *program.Program) *cobra.Command { return commands{p}.command() }

// commands has the functions of the commands.
type commands struct{ *program.Program }

func (p commands) command() *cobra.Command {
	var o tailOptions
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Follow the log: show messages as they are committed",
		Long: `Show the messages of the log as they are committed, from now on or from an earlier place (--from): a sequence, a time, how
long ago, or the oldest message that the log still has. It only reads: no relay notices, no cursor is made, nothing is held
back. Messages of different keys may be shown in another order than they were published in, those of one key never are.

With --json, each line is a message in the form that postrider publish --file reads.`,
		Example: `  postrider tail
  postrider tail --from 10m --topic 'order.*'
  postrider tail --from oldest --key order/42 --stop --json
  postrider tail --from 4711 --limit 20`,
		Args: program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.limit < 0 {
				return program.Usagef("--limit must not be negative, is %d", o.limit)
			}
			return p.WithStore(cmd, func(b *backend.Outbox) error { return p.tail(cmd.Context(), b, o) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "now", "`place` to begin at: now, oldest, a sequence, a time (RFC 3339), or how long ago (10m)")
	f.StringVar(&o.topic, "topic", "", "only topics that match this `pattern`, in which * stands for any text")
	f.StringVar(&o.key, "key", "", "only messages with this `key`")
	f.StringVar(&o.kind, "type", "", "only messages of this `type`")
	f.StringVar(&o.tenant, "tenant", "", "only messages of this `tenant`")
	f.BoolVar(&o.json, "json", false, "write one JSON object per line")
	f.BoolVar(&o.stop, "stop", false, "stop at the end of the log instead of following it")
	f.Int64Var(&o.limit, "limit", 0, "stop after `n` messages, 0 for no limit")
	return cmd
}

// openReader opens a reader at the position of --from.
func openReader(ctx context.Context, b *backend.Outbox, from string) (*logreader.Reader, time.Time, error) {
	var none time.Time
	switch from {
	case "now":
		r, err := logreader.FromNow(ctx, b.Store)
		return r, none, err
	case "oldest":
		r, err := logreader.FromOldest(ctx, b.Store)
		return r, none, err
	}
	if n, err := program.ParseInt(from); err == nil {
		if n < 0 {
			return nil, none, program.Usagef("--from %s: a sequence is not negative", from)
		}
		r, err := logreader.FromSequence(ctx, b.Store, n)
		return r, none, err
	}
	if _, err := program.ParseTime("from", from, none); err != nil {
		return nil, none, program.Usagef("--from %s is not a place; write now, oldest, a sequence, 2026-01-31T15:04:05Z, or how long ago, e.g. 10m", from)
	}
	status, err := b.Status(ctx) // for the database's clock
	if err != nil {
		return nil, none, err
	}
	moment, err := program.ParseTime("from", from, status.Now)
	if err != nil {
		return nil, none, err
	}
	r, err := logreader.FromTime(ctx, b.Store, moment)
	return r, moment, err
}

// tail prints what the reader returns until ctx ends.
func (p commands) tail(ctx context.Context, b *backend.Outbox, o tailOptions) error {
	r, since, err := openReader(ctx, b, o.from)
	if err != nil {
		return err
	}
	wanted := o.matcher(since)
	wake, unsubscribe := b.Subscribe(nil)
	defer unsubscribe()
	shown := int64(0)
	for {
		records, more, err := r.Next(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		for _, rec := range records {
			if !wanted(rec.Message) {
				continue
			}
			if rec.Err != nil {
				fmt.Fprintf(p.Stderr, "postrider: message with sequence %d cannot be read whole: %v\n", rec.Message.Sequence, rec.Err)
			}
			if err := p.writeLogLine(rec.Message, o.json); err != nil {
				if _, ok := errors.AsType[*json.MarshalerError](err); !ok {
					return err
				}
				fmt.Fprintf(p.Stderr, "postrider: message with sequence %d has no JSON form: %v\n", rec.Message.Sequence, err)
			}
			if shown++; shown == o.limit {
				return nil
			}
		}
		if more {
			continue
		}
		if o.stop {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
		case <-time.After(tailPoll):
		}
	}
}

// matcher returns a predicate for the filters.
func (o tailOptions) matcher(since time.Time) func(*postrider.Message) bool {
	topic := regexp.MustCompile("^(?s:" + strings.ReplaceAll(regexp.QuoteMeta(o.topic), `\*`, ".*") + ")$")
	return func(m *postrider.Message) bool {
		return !m.CreatedAt.Before(since) && (o.topic == "" || topic.MatchString(m.Topic)) && (o.key == "" || m.Key == o.key) &&
			(o.kind == "" || m.Type == o.kind) && (o.tenant == "" || m.Tenant == o.tenant)
	}
}

// writeLogLine writes a message in one line.
func (p commands) writeLogLine(m *postrider.Message, asJSON bool) error {
	if asJSON {
		return output.Line(p.Stdout, m)
	}
	kind := m.Type
	if m.Topic != m.Type {
		kind = m.Topic + " " + m.Type
	}
	key := m.Key
	if key == "" {
		key = "-"
	}
	payload := strings.TrimSpace(output.Payload(m.Payload[:min(len(m.Payload), 200)]))
	_, err := fmt.Fprintf(p.Stdout, "%d  %s  %s  %s  %s  %s\n", m.Sequence, output.Moment(m.CreatedAt), output.Printable(kind), output.Printable(key),
		output.Printable(m.ID), output.Shorten(strings.Join(strings.Fields(output.Printable(payload)), " "), 100))
	return err
}
