package postgres

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"regexp"
	"time"

	"github.com/postrider/postrider/internal/stored"
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
	// Partitions is how many partitions a new outbox gets, 1 to 1,024. Only Migrate uses it, when it creates the schema; from then
	// on, the number in the database applies. Default: 8.
	Partitions int
	// SegmentFor is how long publishers write to a segment of the log before a relay moves them to the next one, at least a minute.
	// Messages are dropped by whole segments, so they are kept for up to this long beyond their retention. A retention of more than
	// 16 times SegmentFor makes segments longer, since each segment adds a little to the cost of every fetch. Default: 6 h.
	SegmentFor time.Duration
	// IdleTimeout is how long a handler's transaction (relay.HandleTx, inbox) may wait for its next statement before the server ends
	// it, in whole milliseconds. It limits how long a process that is paused inside a transaction blocks others. If a relay's
	// LeaseTTL is shorter, that applies instead. IdleTimeout does not apply to transactions of Outbox.InTx, nor while a statement
	// runs. A handler that computes for longer between statements is rolled back. Default: 15 s. Negative: no limit.
	IdleTimeout time.Duration
	// DeliverAfterFlush makes relays deliver a message only after its commit is on the server's disk. Set it if publishers commit with
	// synchronous_commit off: a crash of the server can otherwise undo what was already delivered. A fetch that finds messages
	// flushes the write-ahead log if necessary. Default: off.
	DeliverAfterFlush bool
	// NotifyEvery is the shortest time between two notifications, by which Wake wakes relays in other processes, on a connection of
	// the pool, outside any transaction. They are sent only while another process listens. Default: 2 ms. Negative: none are sent, and
	// without ListenDSN none are received; relays look for messages of other processes every 100 ms in any case.
	NotifyEvery time.Duration
	// ListenDSN is where relays receive notifications: the server itself, not a pooler. Set it if the store's connections lead to a
	// pooler, or are those of a *sql.DB (NewSQL). Default: the address of the pool; a *sql.DB listens nowhere.
	ListenDSN string
	// Logger gets warnings, e.g. of a restored database. Default: slog.Default().
	Logger *slog.Logger

	segmentSpan int64 // numbers per new segment; tests use fewer
	files       fs.FS // the migrations; tests add some
	adoption    adoptionConfig
	patience    stored.Patience // of Migrate; tests wait less
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
	c.adoption = cmp.Or(c.adoption, defaultAdoption)
	return c
}

// margin is how far above its value the sequence must be set, so that it is certain to rise: more numbers than publishers draw
// between reading the sequence and setting it. It is 2^20 for segments of 2^39.
func (c Config) margin() int64 { return max(c.segmentSpan>>19, 1) }

// validate reports all errors of a Config whose defaults are filled in.
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
	return errors.Join(faults...)
}
