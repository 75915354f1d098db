package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/internal/logreader"
	"github.com/postrider/postrider/relay"
)

func (p *Program) explainCommand() *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use:   "explain [ID]",
		Short: "Explain where a message or a key is, why, and what one can do",
		Long: `Explain, for each relay, where a message is: waiting in the log, delivered, parked, or in the dead letters; why and since
when, its attempts, what a webhook answered, how often it was dead-lettered and sent back, what happens next and what you
can do. With --key, explain what blocks a key.

A message is looked up in the dead letters and in the log. An ID that Postrider made holds its time, so that it is found at
once; with another ID the log is read from its oldest message. Consumers read no log: of a consumer in the same database it
shows what the consumer has parked or dead-lettered, and not what it has processed.`,
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

// explained is the message to explain.
type explained struct {
	// m has its sequence in the log, 0 if unknown.
	m         *postrider.Message
	inLog     bool
	letters   []deadletter.Record
	status    relay.Status
	consumers consumerNames
}

// explainMessage finds a message and says what each relay and consumer has done with it.
func (p *Program) explainMessage(ctx context.Context, b *backend.Outbox, id string) error {
	x, err := findSubject(ctx, b, id)
	if err != nil {
		return err
	}
	p.writeSubject(x)
	if len(x.status.Relays) == len(x.consumers) {
		fmt.Fprintln(p.Stdout, "\nno relay has run on this outbox yet; start the program that runs one, or, to publish to a broker: postrider relay")
	}
	if x.unrouted() {
		fmt.Fprintf(p.Stdout, "\nunrouted: no relay takes topic %s\n", printable(x.m.Topic))
		f := newFields(p.Stdout)
		f.add("next", "every relay skips it, and it is dropped from the log with its retention")
		f.add("you can", routeIt)
		f.flush()
	}
	attempts, err := attemptsOf(ctx, b, id, "")
	if err != nil {
		return err
	}
	for _, r := range x.parties() {
		fmt.Fprintf(p.Stdout, "\n%s: ", x.consumers.title(r.Name))
		if err := p.explainAt(ctx, b, x, r); err != nil {
			return err
		}
		writeAttempts(p.Stdout, id, r.Name, attempts)
	}
	return nil
}

// findSubject searches for a message in the dead letters and in the log.
func findSubject(ctx context.Context, b *backend.Outbox, id string) (x explained, err error) {
	if x.letters, err = lettersOf(ctx, b, deadletter.Filter{MessageID: id, State: deadletter.AnyState}); err != nil {
		return x, err
	}
	if x.m, err = findInLog(ctx, b, id); err != nil {
		return x, err
	}
	if x.status, err = b.Status(ctx); err != nil {
		return x, err
	}
	if x.consumers, err = consumersIn(ctx, b); err != nil {
		return x, err
	}
	x.inLog = x.m != nil
	i := slices.IndexFunc(x.letters, func(l deadletter.Record) bool { return l.Side == deadletter.RelaySide && l.Message.Sequence > 0 })
	switch {
	case x.inLog:
	case i >= 0:
		x.m = x.letters[i].Message
	case len(x.letters) > 0: // its sequence is the consumer's, or it was imported
		m := *x.letters[0].Message
		m.Sequence = 0
		x.m = &m
	default:
		err = fmt.Errorf("no message %s in the log or the dead letters: it was rolled back or never published here, or it was "+
			"delivered and is past its retention%s", printable(id), notLookedUp(x.consumers))
	}
	return x, err
}

// notLookedUp names further possibilities for a message that is neither in the log nor in the dead letters.
func notLookedUp(consumers consumerNames) string {
	if len(consumers) == 0 {
		return ""
	}
	return fmt.Sprintf("; whether a consumer of this database (%s) has processed or parked it was not checked, see: "+
		"postrider inbox status", printable(strings.Join(slices.Sorted(maps.Keys(consumers)), ", ")))
}

// unrouted says whether the message is in the log and no relay of the outbox takes it.
func (x *explained) unrouted() bool {
	return x.inLog && len(x.letters) == 0 && len(x.status.Relays) > len(x.consumers) && x.status.NobodyTakes(x.m.Topic)
}

// writeSubject describes the message.
func (p *Program) writeSubject(x explained) {
	created := moment(x.m.CreatedAt)
	switch {
	case x.inLog:
		created = fmt.Sprintf("published %s (%s ago)", created, ago(x.status.Now.Sub(x.m.CreatedAt)))
	case x.m.Sequence == 0 && x.letters[0].Message.Sequence < 0:
		created = fmt.Sprintf("imported as dead letter %d, not in the log", x.letters[0].Number)
	case x.m.Sequence == 0:
		created = fmt.Sprintf("parked by consumer %s %s, not in the log", printable(x.letters[0].Relay), created)
	default:
		created = fmt.Sprintf("published %s, no longer in the log", created)
	}
	fmt.Fprintf(p.Stdout, "message %s: %s\n", printable(x.m.ID), created)
	f := newFields(p.Stdout)
	f.add("type", x.m.Type)
	f.add("topic", x.m.Topic)
	f.add("key", x.m.Key)
	f.add("sequence", nonzero(x.m.Sequence))
	f.flush()
}

// parties are the relays and consumers of the outbox, and those known only from dead letters.
func (x *explained) parties() []relay.RelayStatus {
	out := slices.Clone(x.status.Relays)
	for _, l := range x.letters {
		if !slices.ContainsFunc(out, func(r relay.RelayStatus) bool { return r.Name == l.Relay }) {
			out = append(out, relay.RelayStatus{Name: l.Relay})
		}
	}
	return out
}

// lettersOf collects dead letters.
func lettersOf(ctx context.Context, b *backend.Outbox, f deadletter.Filter) (out []deadletter.Record, err error) {
	for l, err := range b.ListDead(ctx, f, 0, 100) {
		if err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	return out, nil
}

// lookAround is how far the clock that generated an ID may be from the database's.
const lookAround = 10 * time.Minute

// findInLog searches for a message in the log; nil if it is not there.
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

// timeOfID returns the time in a UUIDv7.
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

// explainAt says what one relay or consumer has done with a message.
func (p *Program) explainAt(ctx context.Context, b *backend.Outbox, x explained, r relay.RelayStatus) error {
	own := slices.DeleteFunc(slices.Clone(x.letters), func(l deadletter.Record) bool { return l.Relay != r.Name })
	if err := p.writeSentBack(ctx, b, own); err != nil {
		return err
	}
	for i := len(own) - 1; i >= 0; i-- { // the newest counts
		if own[i].State != deadletter.Redriven {
			return p.explainLetter(own[i])
		}
	}
	m := *x.m
	switch {
	case len(own) > 0:
		m.Sequence = own[len(own)-1].Message.Sequence
	case x.consumers[r.Name]:
		m.Sequence = 0 // the log's sequence is not the consumer's
	}
	if m.Key != "" {
		done, err := p.explainHeld(ctx, b, &m, r.Name)
		if done || err != nil {
			return err
		}
	}
	partition := postrider.PartitionOf(m.Key, m.ID, x.status.Partitions)
	i := slices.IndexFunc(r.Partitions, func(q relay.PartitionStatus) bool { return q.Partition == partition })
	owner := ""
	if i >= 0 {
		owner = r.Partitions[i].Owner
	}
	parked, err := b.FindParked(ctx, r.Name, m.ID)
	switch {
	case err != nil:
		return err
	case len(parked) > 0:
		p.explainAlone(x, &parked[len(parked)-1], owner)
	case m.Sequence == 0:
		p.explainUnknown(x, r)
	case len(own) > 0:
		p.explainSentBack(x, r)
	case i >= 0:
		p.explainPosition(&m, r.Topics, r.Partitions[i])
	default:
		fmt.Fprintf(p.Stdout, "has not begun with partition %d yet\n", partition)
	}
	return nil
}

func (p *Program) explainLetter(l deadletter.Record) error {
	fmt.Fprintf(p.Stdout, "dead letter %d, %s\n", l.Number, l.State)
	f := newFields(p.Stdout)
	f.add("died", moment(l.DiedAt))
	f.add("reason", l.Reason)
	f.add("cause", l.Cause)
	f.add("attempts", number(l.Attempts))
	if l.Edits > 0 {
		f.add("edited", fmt.Sprintf("%s, see: postrider dead show %d", plural(l.Edits, "time"), l.Number))
	}
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

// explainHeld explains a message whose key is held; it reports whether it explained anything.
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
	fmt.Fprintf(p.Stdout, "queued after its held key's blocking message, with more than %s ahead of it\n", plural(len(parked), "message"))
	p.writeHeldFields(h)
	return true, nil
}

// explainParked explains a message of a held key, with ahead messages before it.
func (p *Program) explainParked(h relay.HeldInfo, q relay.ParkedInfo, ahead int) {
	if ahead == 0 {
		fmt.Fprintf(p.Stdout, "blocks its held key since %s\n", moment(h.Since))
	} else {
		fmt.Fprintf(p.Stdout, "queued in its held key since %s, %s ahead of it\n", moment(q.ParkedAt), plural(ahead, "message"))
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

// explainPosition explains a message by the cursor of its partition and by the topics that the relay takes now.
func (p *Program) explainPosition(m *postrider.Message, topics []string, q relay.PartitionStatus) {
	takes := len(topics) == 0 || relay.MatchTopics(topics, m.Topic)
	switch {
	case m.Sequence <= q.Position && takes:
		fmt.Fprintf(p.Stdout, "delivered, or skipped by the topics that the relay took then: the cursor of partition %d is past it\n", q.Partition)
		return
	case !takes:
		fmt.Fprintf(p.Stdout, "does not take topic %s, only %s\n", printable(m.Topic), printable(strings.Join(topics, ", ")))
		return
	}
	fmt.Fprintf(p.Stdout, "waits in the log for its first delivery, at most %s ahead of it in partition %d\n",
		plural(max(q.Backlog.N-1, 0), "message"), q.Partition)
	f := newFields(p.Stdout)
	f.add("next", turnOf("delivered", q.Owner))
	f.flush()
}

// explainKey says what blocks a key.
func (p *Program) explainKey(ctx context.Context, b *backend.Outbox, key string) error {
	status, err := b.Status(ctx)
	if err != nil {
		return err
	}
	partition := postrider.PartitionOf(key, "", status.Partitions)
	fmt.Fprintf(p.Stdout, "key %s: partition %d\n", printable(key), partition)
	consumers, err := consumersIn(ctx, b)
	if err != nil {
		return err
	}
	for _, r := range status.Relays {
		fmt.Fprintf(p.Stdout, "\n%s: ", consumers.title(r.Name))
		h, _, err := b.ShowHeld(ctx, r.Name, key, 1)
		switch {
		case err == nil:
			fmt.Fprintf(p.Stdout, "held since %s, %s parked\n", moment(h.Since), plural(h.Parked, "message"))
			p.writeHeldFields(h)
		case !errors.Is(err, relay.ErrNotHeld):
			return err
		case consumers[r.Name]:
			fmt.Fprintln(p.Stdout, "not held; it reads a broker, not this log")
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
		owner := "nobody works on it; " + startIt
		if q.Owner != "" {
			owner = q.Owner + " works on it"
		}
		fmt.Fprintf(p.Stdout, "not held; its partition has a backlog of %s, age %s; %s\n", count(q.Backlog), ago(q.Age), printable(owner))
		return
	}
	fmt.Fprintf(p.Stdout, "has not begun with partition %d yet\n", partition)
}
