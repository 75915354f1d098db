package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/erasure"
	"github.com/postrider/postrider/internal/migrate"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	// clockWarning and clockFault are how far the clocks of this host and of the database may differ.
	clockWarning, clockFault = time.Second, 30 * time.Second
	clockReads               = 5
)

// Clock compares the clock of this host with that of a database, which read returns.
func Clock(read func(context.Context) (time.Time, error)) Check {
	return Check{Name: "db.clock", Title: "The clocks of this host and of the database agree", Run: func(ctx context.Context) ([]Finding, error) {
		var off, trip time.Duration
		for i := range clockReads {
			before := time.Now()
			now, err := read(ctx)
			took := time.Since(before)
			if err != nil {
				return nil, err
			}
			if i == 0 || took < trip {
				trip, off = took, now.Sub(before.Add(took/2))
			}
		}
		ahead := "behind"
		if off < 0 {
			ahead, off = "ahead of", -off
		}
		if off-trip/2 < clockWarning {
			return nil, nil
		}
		f := Finding{
			Level: Warning, Target: "this host", Message: fmt.Sprintf("The clock of this host is %s %s the clock of the database.", lasting(off), ahead),
			Impact:   "Delivery times that programs set, and ages in logs, are wrong by that. Leases are not: they are timed by the database.",
			Fix:      []Fix{{Text: "synchronise both with a time server:", Command: "timedatectl set-ntp true"}},
			Evidence: fmt.Sprintf("the smallest of %d round trips took %s", clockReads, lasting(trip)),
		}
		if off >= clockFault {
			f.Level = Fault
		}
		return []Finding{f}, nil
	}}
}

// SchemaVersion compares the migrations that a database has with those that this program knows.
func SchemaVersion(target string, all []migrate.Status) []Finding {
	have, known, oldest := 0, 0, 0
	for _, m := range all {
		if m.Applied {
			have, oldest = max(have, m.Version), max(oldest, m.Oldest)
		}
		if !m.Unknown {
			known = max(known, m.Version)
		}
	}
	f := Finding{Level: Fault, Target: target, Impact: "This program cannot work with the database.", Evidence: "the record of migrations"}
	switch {
	case have == 0:
		f.Message = "There are no tables of an outbox."
		f.Fix = []Fix{command("create them:", "migrate up")}
	case have < known:
		f.Message = fmt.Sprintf("The schema has version %d, and this program needs version %d.", have, known)
		f.Fix = []Fix{command("migrate, or use the program of the older version:", "migrate up")}
	case have > known && oldest > known:
		f.Message = fmt.Sprintf("The schema has version %d, for programs that know version %d. This one knows %d.", have, oldest, known)
		f.Fix = []Fix{{Text: "use the program that migrated the schema"}}
	default:
		return nil
	}
	return []Finding{f}
}

const (
	// maintainedWarning and maintainedFault are how long ago maintenance succeeded at the latest: a relay tries each minute.
	maintainedWarning, maintainedFault = 15 * time.Minute, time.Hour
)

// Maintenance checks that a relay maintains the log, and what also finds.
func Maintenance(s Store, also func(context.Context) ([]Finding, error)) Check {
	return Check{Name: "db.maintenance", Title: "The log is maintained", Run: func(ctx context.Context) ([]Finding, error) {
		out, err := maintained(ctx, s)
		if err != nil || also == nil {
			return out, err
		}
		found, err := also(ctx)
		return append(out, found...), err
	}}
}

func maintained(ctx context.Context, s Store) ([]Finding, error) {
	status, err := s.Status(ctx)
	if err != nil {
		return nil, err
	}
	done, err := stored.Notes(ctx, s, stored.NoteMaintained)
	if err != nil {
		return nil, err
	}
	failed, err := stored.Notes(ctx, s, stored.NoteNotMaintained)
	if err != nil {
		return nil, err
	}
	newest := func(a, b store.Record) int { return a.At.Compare(b.At) }
	var since time.Time // since when it should have been maintained
	if len(done) > 0 {
		since = slices.MaxFunc(done, newest).At
	} else if since = running(status); since.IsZero() {
		return nil, nil // no relay has run long enough
	}
	age := status.Now.Sub(since)
	if age < maintainedWarning {
		return nil, nil
	}
	f := Finding{
		Level: Warning, Target: "the log", Message: fmt.Sprintf("The log has not been maintained for %s.", lasting(age)),
		Impact:   "Delivered messages are not removed, and the log grows.",
		Fix:      []Fix{command("start a relay, which maintains the log each minute:", "relay")},
		Evidence: "the note that relays write after maintenance",
	}
	if age >= maintainedFault {
		f.Level = Fault
	}
	if len(failed) > 0 {
		if last := slices.MaxFunc(failed, newest); last.At.After(since) {
			f.Evidence = fmt.Sprintf("relay %s failed %s ago: %s", last.ID, lasting(status.Now.Sub(last.At)), store.NormalizeCause(string(last.Body)))
		}
	}
	return []Finding{f}, nil
}

// running is since when a relay or consumer has run that owns a partition; zero if none does.
func running(s store.Status) (since time.Time) {
	for _, r := range s.Relays {
		for _, o := range r.Owners {
			owns := slices.ContainsFunc(r.Partitions, func(p store.PartitionStatus) bool { return p.Owner == o.ID })
			if o.Alive && owns && (since.IsZero() || o.Started.Before(since)) {
				since = o.Started
			}
		}
	}
	return since
}

// window reports what consumers that run have noted about the time for which they keep IDs.
func (l *looker) window(ctx context.Context) (out []Finding, err error) {
	s, err := l.read(ctx)
	if err != nil {
		return nil, err
	}
	notes, err := stored.Notes(ctx, l.store, stored.NoteWindow)
	for _, n := range notes {
		i := slices.IndexFunc(s.Relays, func(r store.RelayStatus) bool { return r.Name == n.ID })
		if len(n.Body) == 0 || i < 0 || !alive(s.Relays[i]) {
			continue
		}
		out = append(out, Finding{
			Level: Warning, Target: n.ID, Message: fmt.Sprintf("Consumer %s may apply a message twice: %s.", n.ID, n.Body),
			Impact:   "A message that is redelivered after its ID was removed is processed again.",
			Fix:      []Fix{{Text: "change ConsumerConfig, and restart the consumer"}},
			Evidence: "the note that the consumer wrote when it started",
		})
	}
	return out, err
}

// erasures reports erasures that have not ended, and whose processes are gone.
func (l *looker) erasures(ctx context.Context) (out []Finding, err error) {
	s, err := l.read(ctx)
	if err != nil {
		return nil, err
	}
	for e, err := range erasure.New(l.store).List(ctx) {
		if err != nil && e.ID == "" {
			return nil, err
		}
		age := s.Now.Sub(e.ChangedAt)
		if err != nil || e.Ended() || age < interruptedFor {
			continue
		}
		out = append(out, Finding{
			Level: Warning, Target: e.ID, Message: fmt.Sprintf("An erasure of a %s by %s was interrupted %s ago.", e.Subject, e.By, lasting(age)),
			Impact:   "What it was to erase is still there.",
			Fix:      []Fix{command("erase the rest:", "erase resume %s", e.ID)},
			Evidence: "the record of the erasure",
		})
	}
	return out, nil
}
