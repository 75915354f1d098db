package mysqlstore

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/postrider/postrider/store"
)

// Defaults of Config.
const (
	DefaultPrefix        = "postrider_"
	DefaultPartitions    = 8
	DefaultCloseGapAfter = 5 * time.Second
	DefaultIdleTimeout   = 15 * time.Second
)

// Config configures New and the migrations. The zero value of each field means its default.
type Config struct {
	// Prefix begins the name of every table and procedure: a letter or underscore, then letters, digits and underscores, at
	// most 40 bytes. Default: DefaultPrefix.
	Prefix string
	// Partitions is the number of partitions that Migrate gives a new outbox, 1 to store.MaxPartitions. Default:
	// DefaultPartitions. For an existing outbox, New accepts only the number it has, or 0.
	Partitions int
	// CloseGapAfter is how long a sequence may be missing from the log before a relay closes it (see the package comment). A
	// transaction that has written its row is never affected. An INSERT that takes longer than this between taking its sequence
	// and writing its row must be repeated; Insert and the procedure do so. Default: DefaultCloseGapAfter.
	CloseGapAfter time.Duration
	// IdleTimeout is how long a transaction that this store begins may wait for its next statement before the server ends it, in
	// whole seconds. It limits how long a paused process keeps others waiting. It also applies to handlers in a transaction
	// (HandleTx, inbox, Outbox.InTx) while they execute no statement: a handler that computes for longer is rolled back. At most
	// relay.Config.LeaseTTL. Default: DefaultIdleTimeout. Negative: no limit.
	IdleTimeout time.Duration
	// Logger receives what an operator should know. Default: slog.Default().
	Logger *slog.Logger
	// ErrorCode returns the MySQL error number of a driver's error, 0 if it has none. Default: the value of an unsigned integer
	// field Number, as in the MySQLError of go-sql-driver/mysql.
	ErrorCode func(error) int
}

var prefixPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,39}$`)

// withDefaults sets defaults and reports all errors at once.
func (c Config) withDefaults() (Config, error) {
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	if c.CloseGapAfter == 0 {
		c.CloseGapAfter = DefaultCloseGapAfter
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = DefaultIdleTimeout
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.ErrorCode == nil {
		c.ErrorCode = codeOf
	}
	var faults []error
	if !prefixPattern.MatchString(c.Prefix) {
		faults = append(faults, fmt.Errorf("Prefix %q: want a letter or underscore, then letters, digits and underscores, "+
			"at most 40 bytes", c.Prefix))
	}
	if c.Partitions < 0 || c.Partitions > store.MaxPartitions {
		faults = append(faults, fmt.Errorf("Partitions %d: want 1 to %d, or 0 for %d", c.Partitions, store.MaxPartitions,
			DefaultPartitions))
	}
	if c.CloseGapAfter < 0 {
		faults = append(faults, fmt.Errorf("CloseGapAfter %s: want a positive time, or 0 for %s", c.CloseGapAfter,
			DefaultCloseGapAfter))
	}
	if c.IdleTimeout > 0 && c.IdleTimeout < time.Second {
		faults = append(faults, fmt.Errorf("IdleTimeout %s: want a second or more, 0 for %s, or a negative one for no limit",
			c.IdleTimeout, DefaultIdleTimeout))
	}
	if len(faults) > 0 {
		return c, fmt.Errorf("mysql store: %w", errors.Join(faults...))
	}
	return c, nil
}
