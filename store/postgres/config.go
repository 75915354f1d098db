package postgres

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"regexp"
	"time"
)

// The defaults of a Config.
const (
	DefaultSchema      = "public"
	DefaultPrefix      = "postrider_"
	DefaultPartitions  = 8
	DefaultSegmentFor  = 6 * time.Hour
	DefaultNotifyEvery = 2 * time.Millisecond
	DefaultIdleTimeout = 15 * time.Second
)

// Config says where the outbox is and how the store keeps it. The zero value of each field means its default.
type Config struct {
	// Schema is the database schema of the tables; it must exist. Lower-case letters, digits and underscores, at most 63
	// bytes. Default: "public".
	Schema string
	// Prefix begins the name of each table and function. Lower-case letters, digits and underscores, at most 32 bytes.
	// Default: "postrider_".
	Prefix string
	// Partitions is how many partitions a new outbox gets, 1 to 1,024. It is read once, when Migrate creates the schema; the
	// database's number holds from then on. Default: 8.
	Partitions int
	// SegmentFor is the time after which a relay sends publishers to the next segment of the log, at least a minute. Messages
	// are dropped by whole segments, so they are kept for up to this long beyond their retention. A retention of more
	// than 16 times SegmentFor makes segments longer, since each costs a little in every fetch. Default: 6 h.
	SegmentFor time.Duration
	// IdleTimeout is how long a handler's transaction (relay.HandleTx, inbox) may wait for its next statement before the server
	// ends it, in whole milliseconds: a process that is paused in the middle of one keeps others waiting no longer than that. A
	// relay's LeaseTTL counts instead if it is less. It does not apply to transactions of Outbox.InTx, nor while a statement
	// runs. A handler that computes for longer is undone. Default: 15 s. Negative: no limit.
	IdleTimeout time.Duration
	// Notify tells relays in other processes of commits: Wake sends one pg_notify per NotifyEvery, from a connection of the
	// pool, outside of any transaction. Default: off, other processes find messages by polling.
	Notify bool
	// NotifyEvery is the shortest time between two notifications. Default: 2 ms.
	NotifyEvery time.Duration
	// ListenDSN is where Listen connects to, to hear what other processes notify: the server itself or a pooler in session
	// mode, since LISTEN belongs to a session. Default: "", Listen returns at once.
	ListenDSN string
	// Logger gets warnings, e.g. of a restored database. Default: slog.Default().
	Logger *slog.Logger

	segmentSpan int64 // numbers in a segment that is made; tests need fewer
	files       fs.FS // of migrations; tests have more
}

var identifier = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

func (c Config) withDefaults() Config {
	c.Schema = cmp.Or(c.Schema, DefaultSchema)
	c.Prefix = cmp.Or(c.Prefix, DefaultPrefix)
	c.Partitions = cmp.Or(c.Partitions, DefaultPartitions)
	c.SegmentFor = cmp.Or(c.SegmentFor, DefaultSegmentFor)
	c.segmentSpan = cmp.Or(c.segmentSpan, segmentSpan)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, DefaultIdleTimeout)
	c.NotifyEvery = cmp.Or(c.NotifyEvery, DefaultNotifyEvery)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

// margin is how far the sequence must be from a number that it is set to, so that it rises: more than publishers draw between
// the look and the setting. It is 2^20 for segments of 2^39.
func (c Config) margin() int64 { return max(c.segmentSpan>>19, 1) }

// validate reports every fault of a Config whose defaults are filled in.
func (c Config) validate() error {
	var faults []error
	name := func(field, value string, limit int) {
		if !identifier.MatchString(value) || len(value) > limit {
			faults = append(faults, fmt.Errorf("%s is %q: it may have lower-case letters, digits and underscores, "+
				"not begin with a digit, and be %d bytes long", field, value, limit))
		}
	}
	name("Schema", c.Schema, 63)
	name("Prefix", c.Prefix, 32)
	if c.Partitions < 1 || c.Partitions > 1024 {
		faults = append(faults, fmt.Errorf("Partitions is %d: it may be 1 to 1,024", c.Partitions))
	}
	if c.SegmentFor < time.Minute {
		faults = append(faults, fmt.Errorf("SegmentFor is %s: it must be at least 1m", c.SegmentFor))
	}
	if c.IdleTimeout > 0 && c.IdleTimeout < time.Millisecond {
		faults = append(faults, fmt.Errorf("IdleTimeout is %s: it must be at least 1ms, or negative for no limit", c.IdleTimeout))
	}
	if c.NotifyEvery < 0 {
		faults = append(faults, fmt.Errorf("NotifyEvery is %s: it must be positive", c.NotifyEvery))
	}
	return errors.Join(faults...)
}
