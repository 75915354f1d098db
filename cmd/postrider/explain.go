package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/logreader"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/relay"
)

func (p *Program) explainCommand() *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use:   "explain [ID]",
		Short: "Explain where a message or a key is, why, and what one can do",
		Long: `Explain, for each relay, where a message is: waiting in the log, delivered, parked behind its held key, or in the dead
letters; why and since when, what was tried, what a webhook answered, what happens next and what one can do. With --key,
explain what stands in the way of a key.

A message is looked up in the dead letters and in the log. An ID that Postrider made holds its time, so that it is found at
once; with another ID the log is read from its oldest message.`,
		Example: `  postrider explain 0199f3a4-7e1c-7a52-9b61-3f0c2d1e4b5a
  postrider explain --key order/42`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 1) == (key != "") {
				return usagef("give either the ID of a message or --key")
			}
			return p.withStore(cmd, func(b *backend.Outbox) error {
				if key != "" {
					return p.explainKey(cmd.Context(), b, key)
				}
				return p.explainMessage(cmd.Context(), b, args[0])
			})
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "explain this `key`")
	return cmd
}

// explainMessage finds a message and says what each relay has made of it.
func (p *Program) explainMessage(ctx context.Context, b *backend.Outbox, id string) error {
	letters, err := lettersOf(ctx, b, deadletter.Filter{MessageID: id, State: deadletter.AnyState})
	if err != nil {
		return err
	}
	m, err := findInLog(ctx, b, id)
	if err != nil {
		return err
	}
	status, err := b.Status(ctx)
	if err != nil {
		return err
	}
	switch {
	case m != nil:
		fmt.Fprintf(p.Stdout, "message %s: published %s (%s ago)\n", printable(id), moment(m.CreatedAt), ago(status.Now.Sub(m.CreatedAt)))
	case len(letters) > 0:
		m = letters[0].Message
		fmt.Fprintf(p.Stdout, "message %s: published %s, no longer in the log\n", printable(id), moment(m.CreatedAt))
	default:
		return fmt.Errorf("no message %s in the log or the dead letters: it was rolled back or never published here, or it was "+
			"delivered and is past its retention", printable(id))
	}
	f := newFields(p.Stdout)
	f.add("type", m.Type)
	f.add("topic", m.Topic)
	f.add("key", m.Key)
	f.add("sequence", nonzero(m.Sequence))
	f.flush()
	if len(status.Relays) == 0 {
		_, err := fmt.Fprintln(p.Stdout, "\nno relay has run on this outbox yet; start one with: postrider relay")
		return err
	}
	attempts, err := attemptsOf(ctx, b, id, "")
	if err != nil {
		return err
	}
	for _, r := range status.Relays {
		fmt.Fprintf(p.Stdout, "\nrelay %s: ", printable(r.Name))
		if err := p.explainAt(ctx, b, m, r, status, letters); err != nil {
			return err
		}
		writeAttempts(p.Stdout, id, r.Name, attempts)
	}
	return nil
}

// lettersOf collects dead letters.
func lettersOf(ctx context.Context, b *backend.Outbox, f deadletter.Filter) (out []deadletter.Letter, err error) {
	for l, err := range b.ListDead(ctx, f, 0, 100) {
		if err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	return out, nil
}

// lookAround is how far the clock that an ID was made by may be from the database's.
const lookAround = 10 * time.Minute

// findInLog looks for a message in the log; nil when it is not there.
func findInLog(ctx context.Context, b *backend.Outbox, id string) (*postrider.Message, error) {
	var r *logreader.Reader
	var until time.Time
	made, err := timeOfID(id)
	if err == nil {
		until = made.Add(lookAround)
		r, err = logreader.FromTime(ctx, b.Store, made.Add(-lookAround))
	} else {
		r, err = logreader.FromOldest(ctx, b.Store)
	}
	if err != nil {
		return nil, err
	}
	for {
		records, more, err := r.Next(ctx)
		if err != nil {
			return nil, err
		}
		past := len(records) > 0
		for _, rec := range records {
			if rec.Message.ID == id {
				return rec.Message, nil
			}
			past = past && !until.IsZero() && rec.Message.CreatedAt.After(until)
		}
		if past || !more {
			return nil, nil
		}
	}
}

// timeOfID reads the time that a UUIDv7 holds.
func timeOfID(id string) (time.Time, error) {
	if len(id) != 36 || id[14] != '7' {
		return time.Time{}, errors.New("not a UUIDv7")
	}
	b, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	if err != nil || len(b) != 16 {
		return time.Time{}, errors.New("not a UUIDv7")
	}
	var ms int64
	for _, c := range b[:6] {
		ms = ms<<8 | int64(c)
	}
	return time.UnixMilli(ms), nil
}

// explainAt says what one relay has made of a message.
func (p *Program) explainAt(ctx context.Context, b *backend.Outbox, m *postrider.Message, r relay.RelayStatus, s relay.Status,
	letters []deadletter.Letter) error {
	for i := len(letters) - 1; i >= 0; i-- { // the newest counts
		if l := letters[i]; l.Relay == r.Name && (l.State != deadletter.Redriven) {
			return p.explainLetter(l)
		}
	}
	if m.Key != "" {
		done, err := p.explainHeld(ctx, b, m, r.Name)
		if done || err != nil {
			return err
		}
	}
	partition := postrider.PartitionOf(m.Key, m.ID, s.Partitions)
	for _, q := range r.Partitions {
		if q.Partition == partition && m.Sequence > 0 {
			return p.explainPosition(m, r, q)
		}
	}
	_, err := fmt.Fprintf(p.Stdout, "has not begun with partition %d yet\n", partition)
	return err
}

func (p *Program) explainLetter(l deadletter.Letter) error {
	fmt.Fprintf(p.Stdout, "dead letter %d, %s\n", l.Number, l.State)
	f := newFields(p.Stdout)
	f.add("died", moment(l.DiedAt))
	f.add("reason", l.Reason)
	f.add("cause", l.Cause)
	f.add("attempts", number(l.Attempts))
	if l.State == deadletter.Discarded {
		f.add("discarded", strings.TrimSpace(moment(l.ResolvedAt)+" by "+l.ResolvedBy+" "+l.Resolution))
	} else {
		f.add("next", "nothing happens by itself")
		f.add("you can", fmt.Sprintf("postrider dead redrive %d, or postrider dead discard %d --because …", l.Number, l.Number))
	}
	f.flush()
	writeHistory(p.Stdout, l.History)
	return nil
}

// shownParked is how many parked messages of a key explain reads.
const shownParked = 1000

// explainHeld explains a message whose key is held; it reports whether it had something to explain.
func (p *Program) explainHeld(ctx context.Context, b *backend.Outbox, m *postrider.Message, name string) (bool, error) {
	h, parked, err := b.ShowHeld(ctx, name, m.Key, shownParked)
	if errors.Is(err, relay.ErrNotHeld) || err == nil && len(parked) == 0 {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for i, q := range parked {
		if q.Message.ID == m.ID {
			p.explainParked(h, q, i)
			return true, nil
		}
	}
	if h.Parked <= len(parked) || m.Sequence <= parked[len(parked)-1].Message.Sequence {
		return false, nil
	}
	fmt.Fprintf(p.Stdout, "stands behind its held key, more than %s ahead of it\n", plural(len(parked), "message"))
	p.writeHeldFields(h)
	return true, nil
}

// explainParked explains a message of a held key, ahead of which so many others are parked.
func (p *Program) explainParked(h relay.HeldInfo, q relay.ParkedInfo, ahead int) {
	if ahead == 0 {
		fmt.Fprintf(p.Stdout, "parked as head of its held key since %s\n", moment(h.Since))
	} else {
		fmt.Fprintf(p.Stdout, "parked behind its held key since %s, %s ahead of it\n", moment(q.ParkedAt), plural(ahead, "message"))
	}
	p.writeHeldFields(h)
	if ahead == 0 {
		writeHistory(p.Stdout, q.History)
	}
}

func (p *Program) writeHeldFields(h relay.HeldInfo) {
	f := newFields(p.Stdout)
	f.add("reason", string(h.Reason))
	f.add("cause", h.Cause)
	f.add("attempts", number(h.Attempts))
	next := "attempt at " + nextAttempt(h)
	if h.NextAttempt.IsZero() {
		next = "nothing until somebody decides"
	}
	f.add("next", next)
	key := shellQuote(h.Key)
	f.add("you can", fmt.Sprintf("postrider held retry %s, held skip %s --because …, or held dead %s --because …", key, key, key))
	f.flush()
}

// explainPosition explains a message by the cursor of its partition.
func (p *Program) explainPosition(m *postrider.Message, r relay.RelayStatus, q relay.PartitionStatus) error {
	if m.Sequence > q.Position {
		fmt.Fprintf(p.Stdout, "waits in the log for its first delivery, at most %s ahead of it in partition %d\n",
			plural(max(q.Backlog.N-1, 0), "message"), q.Partition)
		next := "it is delivered when its turn comes, by " + q.Owner
		if q.Owner == "" {
			next = "nobody works on this partition; start a relay with: postrider relay"
		}
		f := newFields(p.Stdout)
		f.add("next", next)
		f.flush()
		return nil
	}
	fmt.Fprintf(p.Stdout, "delivered, or passed over by its topics: the cursor of partition %d is past it\n", q.Partition)
	if r.Parked.N > 0 {
		f := newFields(p.Stdout)
		f.add("unless", fmt.Sprintf("it is one of the %s that the relay has parked and that may wait for a time of their own", plural(r.Parked.N, "message")))
		f.flush()
	}
	return nil
}

// explainKey says what stands in the way of a key.
func (p *Program) explainKey(ctx context.Context, b *backend.Outbox, key string) error {
	status, err := b.Status(ctx)
	if err != nil {
		return err
	}
	partition := postrider.PartitionOf(key, "", status.Partitions)
	fmt.Fprintf(p.Stdout, "key %s: partition %d\n", printable(key), partition)
	for _, r := range status.Relays {
		fmt.Fprintf(p.Stdout, "\nrelay %s: ", printable(r.Name))
		h, _, err := b.ShowHeld(ctx, r.Name, key, 1)
		switch {
		case err == nil:
			fmt.Fprintf(p.Stdout, "held since %s, %s parked\n", moment(h.Since), plural(h.Parked, "message"))
			p.writeHeldFields(h)
		case !errors.Is(err, relay.ErrNotHeld):
			return err
		default:
			p.explainFlow(r, partition)
		}
		dead, err := b.CountDead(ctx, deadletter.Filter{Relay: r.Name, Key: key})
		if err != nil {
			return err
		}
		if dead > 0 {
			fmt.Fprintf(p.Stdout, "  %s of this key: postrider dead list --relay %s --key %s\n",
				plural(dead, "open dead letter"), shellQuote(r.Name), shellQuote(key))
		}
	}
	return nil
}

// explainFlow describes the partition of a key that is not held.
func (p *Program) explainFlow(r relay.RelayStatus, partition int) {
	for _, q := range r.Partitions {
		if q.Partition != partition {
			continue
		}
		owner := "nobody works on it; start a relay with: postrider relay"
		if q.Owner != "" {
			owner = "worked on by " + q.Owner
		}
		fmt.Fprintf(p.Stdout, "not held; its partition has a backlog of %s, age %s, and is %s\n", count(q.Backlog), ago(q.Age), owner)
		return
	}
	fmt.Fprintf(p.Stdout, "has not begun with partition %d yet\n", partition)
}
