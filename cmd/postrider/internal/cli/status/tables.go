package status

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/store"
)

// writeStatus writes the tables.
func (p commands) writeStatus(shown string, s store.Status, consumers program.ConsumerNames, details bool) error {
	fmt.Fprintf(p.Stdout, "%s · %s%s · %s\n\n", shown, output.Plural(s.Partitions, "partition"), size(s.Tables), output.Moment(s.Now))
	for _, notice := range s.Notices {
		fmt.Fprintf(p.Stdout, "Note: %s\n\n", output.Printable(notice))
	}
	if len(s.Relays) == 0 {
		_, err := fmt.Fprintln(p.Stdout, "No relay has run on this outbox yet. Start one with: "+p.Hint("relay --publisher 'nats://…?stream=…'"))
		return err
	}
	t := output.NewTable(p.Stdout, "RELAY", "STATUS", "BACKLOG", "AGE", "HELD", "PARKED", "PARKED FOR", "DEAD", "DEAD FOR", "PROCESSES")
	for _, r := range s.Relays {
		t.Row(r.Name, admin.StatusOf(r, admin.DefaultTarget), output.Count(r.Backlog), output.Ago(r.Age), output.Count(r.Held),
			output.Count(r.Parked), output.Ago(r.OldestParked), output.Count(r.Dead), output.Ago(r.OldestDead), alive(r))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := writeUnrouted(p.Stdout, s.Unrouted); err != nil {
		return err
	}
	if details {
		if err := writeTables(p.Stdout, s.Tables); err != nil {
			return err
		}
		for _, r := range s.Relays {
			if err := writeDetails(p.Stdout, r); err != nil {
				return err
			}
		}
	}
	return p.writeHints(s, consumers)
}

// size is the size of all tables, and of the log among them.
func size(tables []store.TableSize) string {
	var all, log int64
	for _, t := range tables {
		all += t.Bytes
		if t.Table == "log" {
			log = t.Bytes
		}
	}
	switch {
	case len(tables) == 0:
		return ""
	case log == 0:
		return " · " + output.Bytes(all)
	}
	return fmt.Sprintf(" · %s (log %s)", output.Bytes(all), output.Bytes(log))
}

func writeTables(out io.Writer, tables []store.TableSize) error {
	if len(tables) == 0 {
		return nil
	}
	fmt.Fprintln(out)
	t := output.NewTable(out, "TABLE", "SIZE")
	for _, s := range tables {
		t.Row(s.Table, output.Bytes(s.Bytes))
	}
	return t.Flush()
}

// writeUnrouted writes the topics that no relay has taken.
func writeUnrouted(out io.Writer, all []store.UnroutedTopic) error {
	if len(all) == 0 {
		return nil
	}
	fmt.Fprintln(out)
	t := output.NewTable(out, "UNROUTED TOPIC", "MESSAGES", "FIRST AT", "LAST AT")
	for _, u := range all {
		t.Row(unroutedTopic(u), output.Number(u.Count), output.Minute(u.FirstAt), output.Minute(u.LastAt))
	}
	return t.Flush()
}

// destinationState is whether a process reaches the destination, and since when.
func destinationState(d store.Destination) string {
	if d.State == store.DestinationUnknown {
		return "-"
	}
	return string(d.State) + " for " + output.Ago(d.For)
}

// unroutedTopic returns the display name of a topic.
func unroutedTopic(u store.UnroutedTopic) string {
	if u.Topic == "" {
		return "(others)"
	}
	return u.Topic
}

// alive is the number of a relay's live processes, or since when it has had none.
func alive(r store.RelayStatus) string {
	n, seen := 0, time.Duration(math.MaxInt64)
	for _, o := range r.Owners {
		seen = min(seen, o.SeenAgo)
		if o.Alive {
			n++
		}
	}
	switch {
	case n > 0:
		return output.Number(n)
	case len(r.Owners) == 0:
		return none
	}
	return none + " for " + output.Ago(seen)
}

// none is the prefix of alive's result for a relay without live processes.
const none = "none"

func writeDetails(out io.Writer, r store.RelayStatus) error {
	fmt.Fprintf(out, "\n%s: %s delivered, %s failed; partitions\n", output.Printable(r.Name), output.Number(r.Delivered), output.Plural(int(r.Failed), "attempt"))
	t := output.NewTable(out, "PARTITION", "POSITION", "BACKLOG", "AGE", "SETTLED", "SETTLEMENTS", "LEASE", "OWNER")
	for _, q := range r.Partitions {
		owner, left := q.Owner, output.Ago(q.LeaseLeft)
		if owner == "" {
			owner, left = "nobody", "-"
		}
		position := strconv.FormatInt(q.Position, 10)
		if r.Kind == store.KindConsumer { // it reads no log
			position = "-"
		}
		t.Row(q.Partition, position, output.Count(q.Backlog), output.Ago(q.Age), output.Since(q.SettledAgo), q.Settlements, left, owner)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%s: processes\n", output.Printable(r.Name))
	t = output.NewTable(out, "OWNER", "STATE", "SEEN", "STARTED", "DESTINATION", "VERSION")
	for _, o := range r.Owners {
		state := "gone"
		if o.Alive {
			state = "alive"
		}
		t.Row(o.ID, state, output.Since(o.SeenAgo), output.Minute(o.Started), destinationState(o.Destination), o.Version)
	}
	return t.Flush()
}
