// Package explain has the commands "postrider explain" and "postrider attempts", which tell about one message.
package explain

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/status"
	"github.com/postrider/postrider/inspect"
	"github.com/postrider/postrider/internal/logreader"
	"github.com/postrider/postrider/store"
)

// explainOptions are the options of explain: what to explain, and how to print it.
type explainOptions struct {
	id, key, relay string
	json, thorough bool
}

// Command returns the command.
func Command(p *program.Program) *cobra.Command { return commands{p}.explainCommand() }

// AttemptsCommand returns "postrider attempts".
func AttemptsCommand(p *program.Program) *cobra.Command { return commands{p}.attemptsCommand() }

// commands has the functions of the commands.
type commands struct{ *program.Program }

func (p commands) explainCommand() *cobra.Command {
	var o explainOptions
	cmd := &cobra.Command{
		Use:   "explain [ID]",
		Short: "Explain where a message or a key is, why, and what one can do",
		Long: `Explain, for each relay, where a message is: waiting in the log, delivered, parked, or in the dead letters; why and since
when, its attempts, what a webhook answered, how often it was dead-lettered and sent back, what happens next and what you
can do. With --key, explain what blocks a key; with --relay, how a relay or consumer is doing.

A message is looked up in the parked messages, the dead letters and the log. An ID that Postrider made holds its time, so
that it is found at once; with another ID the log is read from its oldest message. Consumers read no log: of a consumer in
the same database it shows what the consumer has parked or dead-lettered, and not what it has processed.

At the end it shows what caused the message and what it caused, by the causation IDs of messages, in all stores of the
configuration. Effects are read from the log, from the message on. If they were not searched for to the end, or a store
cannot be read, it says so.

In JSON, each relay and consumer is one of the places, with a state, what happens next (next.code) and the possible
actions. Times are in RFC 3339, and fields that end in _seconds are durations in seconds. "go doc" of the Go package
github.com/postrider/postrider/inspect lists the states and fields.`,
		Example: `  postrider explain 0199f3a4-7e1c-7a52-9b61-3f0c2d1e4b5a
  postrider explain --key order/42
  postrider explain --relay to-nats
  postrider explain 0199f3a4-7e1c-7a52-9b61-3f0c2d1e4b5a --json | jq '.places[] | {name, state, next}'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			given := len(args)
			for _, text := range []string{o.key, o.relay} {
				if text != "" {
					given++
				}
			}
			if given != 1 {
				return program.Usagef("give a message ID, --key or --relay, and only one of them")
			}
			if len(args) == 1 {
				o.id = args[0]
			}
			if o.thorough && o.id == "" {
				return program.Usagef("--thorough needs a message ID: it searches for causes and effects")
			}
			return p.withStores(cmd, func(in stores) error { return p.explain(cmd.Context(), in, o) })
		},
	}
	cmd.Flags().StringVar(&o.key, "key", "", "explain this `key`")
	cmd.Flags().StringVar(&o.relay, "relay", "", "explain how the relay or consumer with this `name` is doing")
	p.CompleteFlag(cmd, "relay", program.Relays)
	p.CompleteFlag(cmd, "key", program.HeldKeys(&o.relay))
	cmd.Flags().BoolVar(&o.thorough, "thorough", false, "search longer for causes and effects: 50,000 messages and 3 s instead of 5,000 and 1 s")
	cmd.Flags().BoolVar(&o.json, "json", false, "write JSON")
	return cmd
}

// explain explains a message, a key or a relay.
func (p commands) explain(ctx context.Context, in stores, o explainOptions) error {
	var e explanation
	b := in.Outbox
	var err error
	switch {
	case o.key != "":
		e.Explanation, err = inspect.Key(ctx, b.Store, o.key)
	case o.relay != "":
		e.Explanation, err = inspect.Relay(ctx, b.Store, o.relay)
	default:
		e.Explanation, err = inspect.Message(ctx, b.Store, o.id)
	}
	if err == nil && o.id != "" {
		e.Causation, err = p.causation(ctx, in, o)
	}
	if errors.Is(err, inspect.ErrNotFound) {
		return p.notFound(ctx, b, err)
	}
	if err != nil {
		return err
	}
	if o.json {
		return output.JSON(p.Stdout, e)
	}
	switch {
	case e.Key != nil:
		note, err := lookForKey(ctx, b, e.Explanation)
		if err != nil {
			return err
		}
		p.writeKey(e.Explanation, note)
	case e.Message != nil:
		p.writeExplanation(e.Explanation)
		p.writeCausation(e.Causation, in.name, o)
	default:
		p.writeRelay(e.Places[0])
	}
	return nil
}

// maxKeySearch is how many messages are read at most to find one with a key.
const maxKeySearch = 50_000

// lookForKey says that the log has no message with a key, which may be mistyped; "" if it has one, or if relays know the key.
func lookForKey(ctx context.Context, b *backend.Outbox, e inspect.Explanation) (string, error) {
	if slices.ContainsFunc(e.Places, func(p inspect.Place) bool { return p.State == inspect.Held || p.Load.Dead.N > 0 }) {
		return "", nil
	}
	r, err := logreader.FromOldest(ctx, b)
	for read, more := 0, true; err == nil && more; {
		var entries []store.Entry
		entries, more, err = r.Next(ctx)
		if slices.ContainsFunc(entries, func(m store.Entry) bool { return m.Message.Key == e.Key.Key }) {
			return "", nil
		}
		if read += len(entries); read >= maxKeySearch && more {
			return fmt.Sprintf("no message with this key among the oldest %s of the log of %s", output.Number(read), b.Shown), nil
		}
	}
	if err != nil {
		return "", fmt.Errorf("look for the key in the log of %s: %w", b.Shown, err)
	}
	return "no message with this key in the log of " + b.Shown, nil
}

// notFound adds a further possibility to the error for a message that was not found.
func (p commands) notFound(ctx context.Context, b *backend.Outbox, err error) error {
	status, failed := b.Status(ctx)
	consumers := program.Consumers(status)
	if failed != nil || len(consumers) == 0 {
		return err
	}
	return fmt.Errorf("%w; whether a consumer of this database (%s) has processed it was not checked, see: %s",
		err, output.Printable(strings.Join(slices.Sorted(maps.Keys(consumers)), ", ")), p.Hint("inbox status"))
}

// writeExplanation writes where a message is.
func (p commands) writeExplanation(e inspect.Explanation) {
	p.writeMessageInfo(e.Message)
	switch {
	case e.Unrouted:
		fmt.Fprintf(p.Stdout, "\nunrouted: no relay takes topic %s\n", output.Printable(e.Message.Topic))
		f := output.NewFields(p.Stdout)
		f.Add("next", e.Next.Text)
		f.Add("you can", status.RouteIt)
		f.Flush()
	case e.Next != nil:
		fmt.Fprintf(p.Stdout, "\n%s; start the program that runs one, or, to publish to a broker: postrider relay\n", e.Next.Text)
	}
	for _, place := range e.Places {
		fmt.Fprintf(p.Stdout, "\n%s: ", titleOf(place))
		p.writePlace(e.Message, place)
		p.writeAttempts(e.Message.ID, place.Recorded)
	}
}

// writeMessageInfo describes the message.
func (p commands) writeMessageInfo(m *inspect.MessageInfo) {
	stored := output.Moment(m.StoredAt)
	switch {
	case m.InLog:
		stored = fmt.Sprintf("published %s (%s ago)", stored, output.Ago(seconds(m.AgeSeconds)))
	case m.Origin == inspect.OriginImported:
		stored = fmt.Sprintf("imported as dead letter %d, not in the log", m.ImportedAs)
	case m.Origin == inspect.OriginReceived:
		stored = fmt.Sprintf("parked by consumer %s %s, not in the log", output.Printable(m.Consumer), stored)
	default:
		stored = fmt.Sprintf("published %s, no longer in the log", stored)
	}
	fmt.Fprintf(p.Stdout, "message %s: %s\n", output.Printable(m.ID), stored)
	f := output.NewFields(p.Stdout)
	f.Add("type", m.Type)
	f.Add("topic", m.Topic)
	f.Add("key", m.Key)
	f.Add("sequence", output.Nonzero(m.Sequence))
	f.Flush()
}

// titleOf is the display name of a place.
func titleOf(place inspect.Place) string {
	return string(place.Kind) + " " + output.Printable(place.Name)
}

// seconds converts a number of seconds.
func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// nextOf says what happens next, why a destination does not answer, and how to make something happen if no process runs.
func nextOf(place inspect.Place) string {
	switch {
	case place.Next.Code == inspect.NextAnswer && place.Down != nil:
		return place.Next.Text + ": " + place.Down.Cause
	case place.Next.Code != inspect.NextProcess:
		return place.Next.Text
	case place.Kind == store.KindConsumer:
		return place.Next.Text + "; start the program that runs this consumer"
	default:
		return place.Next.Text + "; " + status.StartIt
	}
}

// addDecisions adds the commands for the actions that decide something.
func (p commands) addDecisions(f *output.Fields, place inspect.Place) {
	p.addResume(f, place)
	i := slices.IndexFunc(place.Actions, func(a inspect.Action) bool { return a.Kind == inspect.ActionRedrive || a.Kind == inspect.ActionRetry })
	if i < 0 {
		return
	}
	a := place.Actions[i]
	key, named := output.ShellQuote(a.Key), ""
	if i := slices.IndexFunc(place.Actions, func(a inspect.Action) bool { return a.Kind == inspect.ActionSkip && a.MessageID != "" }); i >= 0 {
		named = " --message " + output.ShellQuote(place.Actions[i].MessageID)
	}
	skip := p.Hint("held skip %s%s --because \"…\"", key, named)
	switch {
	case a.Kind == inspect.ActionRetry && a.Key == "":
		id := output.ShellQuote(a.MessageID)
		f.Add("you can", p.Hint("parked retry %s", id))
		f.Add("or", p.Hint("parked skip %s --because \"…\"", id))
		f.Add("or", p.Hint("parked dead %s --because \"…\"", id))
	case a.Kind == inspect.ActionRetry:
		f.Add("you can", p.Hint("held retry %s", key))
		f.Add("or", skip)
		f.Add("or", p.Hint("held dead %s%s --because \"…\"", key, named))
	case a.DeadLetter == 0:
		f.Add("you can", "redrive or discard the dead letter: "+p.Hint("dead list --relay %s --key %s", output.ShellQuote(a.Relay), key))
		f.Add("or", skip)
	default:
		f.Add("you can", p.Hint("dead redrive %d", a.DeadLetter))
		f.Add("or", p.Hint("dead discard %d --because \"…\"", a.DeadLetter))
	}
}

// addResume adds the command that ends a pause.
func (p commands) addResume(f *output.Fields, place inspect.Place) {
	for _, a := range place.Actions {
		if a.Kind == inspect.ActionResume {
			f.Add("resume it with", p.Hint("relay resume %s", output.ShellQuote(a.Relay)))
		}
	}
}
