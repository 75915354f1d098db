package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/relay"
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

func (p *Program) statusCommand() *cobra.Command {
	var o statusOptions
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how the relays are doing",
		Long: `Show backlog, age of the oldest undelivered message, parked messages, held keys and dead letters of each relay, and who
works on which partition. Its cost does not grow with the backlog; counts above 10,000 are written 10,000+,
and --max-dead and --max-held go up to 10,000.

A message that no relay takes is skipped by all of them and counted as unrouted, by topic;
the count is kept for a week after the
last message of the topic.

With a limit (--max-age, --max-parked, --max-dead, --max-held, --max-unrouted) the command ends with exit code 3
when a relay is above it, for monitoring without metrics. Parked messages wait for a held key, for another attempt or
for their delivery time, and do not count for --max-age; --max-parked is for them, and should be longer than any delay
that you publish with. In JSON, durations are in nanoseconds.`,
		Example: `  postrider status --store sqlite:shop.db
  postrider status --details --relay to-nats
  postrider status --watch
  postrider status --json | jq '.relays[] | {name, backlog}'
  postrider status --max-age 1m --max-parked 1h --max-dead 0 --max-unrouted 0 || page-somebody`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.given = cmd.Flags().Changed
			if err := o.check(); err != nil {
				return err
			}
			return p.withStore(cmd, func(b *backend.Outbox) error { return p.status(cmd.Context(), b, o) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.relay, "relay", "", "only this relay, by its `name`")
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
		return usagef("--watch must be positive, is %s", o.watch)
	case o.maxAge < 0:
		return usagef("--max-age must not be negative, is %s; for no limit leave it out", o.maxAge)
	case o.maxParked < 0:
		return usagef("--max-parked must not be negative, is %s; for no limit leave it out", o.maxParked)
	case o.maxDead < 0:
		return usagef("--max-dead must not be negative, is %d; for no limit leave it out", o.maxDead)
	case o.maxHeld < 0:
		return usagef("--max-held must not be negative, is %d; for no limit leave it out", o.maxHeld)
	case o.maxUnrouted < 0:
		return usagef("--max-unrouted must not be negative, is %d; for no limit leave it out", o.maxUnrouted)
	case o.maxDead > relay.CountLimit || o.maxHeld > relay.CountLimit:
		return usagef("--max-dead and --max-held go up to %s: beyond, a status does not count", number(relay.CountLimit))
	}
	return nil
}

// status shows the state once, or repeatedly.
func (p *Program) status(ctx context.Context, b *backend.Outbox, o statusOptions) error {
	if o.watch == 0 {
		s, consumers, err := p.readStatus(ctx, b, o)
		if err != nil {
			return err
		}
		if err := p.showStatus(b, s, consumers, o); err != nil {
			return err
		}
		return o.judge(s, consumers)
	}
	_, live := p.terminal(p.Stdout)
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
func (p *Program) readStatus(ctx context.Context, b *backend.Outbox, o statusOptions) (relay.Status, consumerNames, error) {
	s, err := b.Status(ctx)
	if err != nil {
		return s, nil, fmt.Errorf("read the status of %s: %w", b.Shown, err)
	}
	consumers := consumersIn(s)
	s.Relays, err = chosenRelays(s.Relays, o.relay)
	return s, consumers, err
}

func (p *Program) showStatus(b *backend.Outbox, s relay.Status, consumers consumerNames, o statusOptions) error {
	if o.json && o.watch > 0 {
		return printLine(p.Stdout, forJSON(s))
	}
	if o.json {
		return printJSON(p.Stdout, forJSON(s))
	}
	return writeStatus(p.Stdout, b.Shown, s, consumers, o.details)
}

// statusJSON is relay.Status with lower-case field names for owners, and empty lists instead of null.
type statusJSON struct {
	relay.Status
	Relays []relayJSON `json:"relays"`
}

type relayJSON struct {
	relay.RelayStatus
	Owners []ownerJSON `json:"owners"`
}

// ownerJSON is relay.OwnerStatus.
type ownerJSON struct {
	ID      string        `json:"id"`
	Host    string        `json:"host"`
	Version string        `json:"version"`
	Alive   bool          `json:"alive"`
	SeenAgo time.Duration `json:"seen_ago"`
	Started time.Time     `json:"started"`
}

func forJSON(s relay.Status) statusJSON {
	out := statusJSON{s, make([]relayJSON, len(s.Relays))}
	for i, r := range s.Relays {
		out.Relays[i] = relayJSON{r, ownersJSON(r.Owners)}
	}
	return out
}

func ownersJSON(owners []relay.OwnerStatus) []ownerJSON {
	out := make([]ownerJSON, len(owners))
	for i, o := range owners {
		out[i] = ownerJSON{o.ID, o.Host, o.Version, o.Alive, o.SeenAgo, o.Started}
	}
	return out
}

// chosenRelays returns the relay with a name, all for "".
func chosenRelays(all []relay.RelayStatus, name string) ([]relay.RelayStatus, error) {
	if name == "" {
		return all, nil
	}
	i := slices.IndexFunc(all, func(r relay.RelayStatus) bool { return r.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no relay %q in this outbox; it has %s", name, relayNames(all))
	}
	return all[i : i+1], nil
}

func relayNames(all []relay.RelayStatus) string {
	if len(all) == 0 {
		return "none yet: a relay appears when it first runs"
	}
	names := make([]string, len(all))
	for i, r := range all {
		names[i] = r.Name
	}
	return strings.Join(names, ", ")
}

// writeStatus writes the tables.
func writeStatus(out io.Writer, shown string, s relay.Status, consumers consumerNames, details bool) error {
	fmt.Fprintf(out, "%s · %s · %s\n\n", shown, plural(s.Partitions, "partition"), moment(s.Now))
	for _, notice := range s.Notices {
		fmt.Fprintf(out, "Note: %s\n\n", printable(notice))
	}
	if len(s.Relays) == 0 {
		_, err := fmt.Fprintln(out, "No relay has run on this outbox yet. Start one with: postrider relay --publisher nats://…?stream=…")
		return err
	}
	t := newTable(out, "RELAY", "BACKLOG", "AGE", "HELD KEYS", "PARKED", "OLDEST", "DEAD", "OLDEST", "DELIVERED", "FAILED", "PROCESSES")
	for _, r := range s.Relays {
		t.row(r.Name, count(r.Backlog), ago(r.Age), count(r.Held), count(r.Parked), ago(r.OldestParked), count(r.Dead),
			ago(r.OldestDead), number(r.Delivered), number(r.Failed), alive(r))
	}
	if err := t.flush(); err != nil {
		return err
	}
	if err := writeUnrouted(out, s.Unrouted); err != nil {
		return err
	}
	if details {
		for _, r := range s.Relays {
			if err := writeDetails(out, r); err != nil {
				return err
			}
		}
	}
	return writeHints(out, s, consumers)
}

// writeUnrouted writes the topics that no relay has taken.
func writeUnrouted(out io.Writer, all []relay.UnroutedTopic) error {
	if len(all) == 0 {
		return nil
	}
	fmt.Fprintln(out)
	t := newTable(out, "UNROUTED TOPIC", "MESSAGES", "FIRST", "LAST")
	for _, u := range all {
		t.row(unroutedTopic(u), number(u.Count), moment(u.FirstAt), moment(u.LastAt))
	}
	return t.flush()
}

// unroutedTopic returns the display name of a topic.
func unroutedTopic(u relay.UnroutedTopic) string {
	if u.Topic == "" {
		return "(others)"
	}
	return u.Topic
}

// alive is the number of a relay's live processes, or since when it has had none.
func alive(r relay.RelayStatus) string {
	n, seen := 0, time.Duration(math.MaxInt64)
	for _, o := range r.Owners {
		seen = min(seen, o.SeenAgo)
		if o.Alive {
			n++
		}
	}
	switch {
	case n > 0:
		return number(n)
	case len(r.Owners) == 0:
		return none
	}
	return none + " for " + ago(seen)
}

// none is the prefix of alive's result for a relay without live processes.
const none = "none"

func writeDetails(out io.Writer, r relay.RelayStatus) error {
	fmt.Fprintf(out, "\n%s: partitions\n", printable(r.Name))
	t := newTable(out, "PARTITION", "OWNER", "SETTLEMENTS", "LEASE LEFT", "POSITION", "BACKLOG", "AGE", "SETTLED AGO")
	for _, q := range r.Partitions {
		owner, left := q.Owner, ago(q.LeaseLeft)
		if owner == "" {
			owner, left = "nobody", "-"
		}
		position := strconv.FormatInt(q.Position, 10)
		if r.Kind == relay.KindConsumer { // it reads no log
			position = "-"
		}
		t.row(q.Partition, owner, q.Settlements, left, position, count(q.Backlog), ago(q.Age), ago(q.SettledAgo))
	}
	if err := t.flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%s: processes\n", printable(r.Name))
	t = newTable(out, "OWNER", "HOST", "VERSION", "STATE", "SEEN AGO", "STARTED")
	for _, o := range r.Owners {
		state := "gone"
		if o.Alive {
			state = "alive"
		}
		t.row(o.ID, o.Host, o.Version, state, ago(o.SeenAgo), moment(o.Started))
	}
	return t.flush()
}

// writeHints says what an operator can do about what is stuck.
func writeHints(out io.Writer, s relay.Status, consumers consumerNames) error {
	var hints []string
	for _, r := range s.Relays {
		name := printable(r.Name)
		if hint := hintNobody(r, consumers[r.Name]); hint != "" {
			hints = append(hints, name+": "+hint+", or if it is gone for good: postrider outbox forget "+name)
		}
		if r.Held.N > 0 {
			hints = append(hints, name+": held keys; see: postrider held list --relay "+name)
		}
		if r.Dead.N > 0 {
			hints = append(hints, name+": dead letters; see: postrider dead list --relay "+name)
		}
	}
	if len(s.Unrouted) > 0 {
		hints = append(hints, "unrouted messages: no relay took their topics; "+routeIt)
	}
	if len(hints) > 0 {
		_, err := fmt.Fprintln(out, "\n"+strings.Join(hints, "\n"))
		return err
	}
	return nil
}

// routeIt is the advice for a topic that no relay takes.
const routeIt = "add the topic to the topics of a relay, and for messages that are still in the log start a relay under a new name, " +
	"which begins with the oldest"

// hintNobody is the advice for a relay or consumer that has work but no process, "" for others.
func hintNobody(r relay.RelayStatus, consumer bool) string {
	switch {
	case !strings.HasPrefix(alive(r), none):
		return ""
	case consumer && r.Parked.N > 0:
		return "nobody processes what is parked; start the program that runs this consumer"
	case r.Backlog.N > 0:
		return "nobody delivers, and the log keeps what it has not delivered; " + startIt
	case r.Parked.N > 0:
		return "nobody delivers what is parked; " + startIt
	}
	return ""
}

// above says whether a count is above a limit, which is at most relay.CountLimit.
func above(c relay.Count, limit int64) bool { return c.N > limit || c.AtLeast && c.N == limit }

// judge compares the state with the limits.
func (o statusOptions) judge(s relay.Status, consumers consumerNames) error {
	var broken []string
	for _, r := range s.Relays {
		title := consumers.title(r.Name)
		if o.given("max-age") && r.Age > o.maxAge {
			broken = append(broken, fmt.Sprintf("%s: age %s is above %s", title, ago(r.Age), o.maxAge))
		}
		if o.given("max-parked") && r.OldestParked > o.maxParked {
			broken = append(broken, fmt.Sprintf("%s: a message has been parked for %s, longer than %s", title, ago(r.OldestParked), o.maxParked))
		}
		if o.given("max-dead") && above(r.Dead, o.maxDead) {
			broken = append(broken, fmt.Sprintf("%s: %s, more than %d", title, pluralOf(r.Dead, "dead letter"), o.maxDead))
		}
		if o.given("max-held") && above(r.Held, o.maxHeld) {
			broken = append(broken, fmt.Sprintf("%s: %s, more than %d", title, pluralOf(r.Held, "held key"), o.maxHeld))
		}
	}
	for _, u := range s.Unrouted {
		if o.given("max-unrouted") && u.Count > o.maxUnrouted {
			broken = append(broken, fmt.Sprintf("topic %s: %s unrouted, more than %d", printable(unroutedTopic(u)), plural(int(u.Count), "message"), o.maxUnrouted))
		}
	}
	if len(broken) > 0 {
		return &exitError{exitNo, fmt.Errorf("%s", strings.Join(broken, "\n"))}
	}
	return nil
}
