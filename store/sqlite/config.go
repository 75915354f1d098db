package sqlite

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/postrider/postrider/store"
)

// Defaults of Config.
const (
	DefaultPrefix      = "postrider_"
	DefaultPartitions  = 8
	DefaultBusyTimeout = 10 * time.Second
)

// Config configures New and the migrations. The zero value of each field means its default.
type Config struct {
	// Prefix begins the name of every table: a letter or underscore, then letters, digits and underscores, at most 40 bytes, but not
	// sqlite_. Default: DefaultPrefix.
	Prefix string
	// Partitions is the number of partitions that Migrate gives a new outbox, 1 to store.MaxPartitions. Default: DefaultPartitions. For an
	// existing outbox its own number applies, and New refuses any other but 0.
	Partitions int
	// Clock supplies every time in the database. All processes that use a file run on its host, so they share one clock. Default:
	// time.Now.
	Clock func() time.Time
	// BusyTimeout limits how long a transaction of the store waits for another writer's lock before it fails with ErrBusy. The
	// driver's own busy_timeout counts towards it, and the last try may exceed it by that much. Default: DefaultBusyTimeout.
	BusyTimeout time.Duration
	// ErrorCode returns the SQLite result code (primary or extended) of a driver's error, 0 if it has none. Default: the result of
	// the error's method Code() int, which modernc.org/sqlite has. For mattn/go-sqlite3:
	//
	//	func(err error) int {
	//		if e, ok := errors.AsType[sqlite3.Error](err); ok {
	//			return int(e.ExtendedCode)
	//		}
	//		return 0
	//	}
	ErrorCode func(error) int
}

var prefixPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,39}$`)

// withDefaults fills in zero fields and reports all errors at once.
func (c Config) withDefaults() (Config, error) {
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.BusyTimeout == 0 {
		c.BusyTimeout = DefaultBusyTimeout
	}
	if c.ErrorCode == nil {
		c.ErrorCode = codeOf
	}
	var faults []error
	if !prefixPattern.MatchString(c.Prefix) || strings.HasPrefix(strings.ToLower(c.Prefix), "sqlite_") {
		faults = append(faults, fmt.Errorf("Prefix %q: want a letter or underscore, then letters, digits and underscores, "+
			"at most 40 bytes, and not sqlite_, which SQLite keeps for itself", c.Prefix))
	}
	if c.Partitions < 0 || c.Partitions > store.MaxPartitions {
		faults = append(faults, fmt.Errorf("Partitions %d: want 1 to %d, or 0 for %d", c.Partitions, store.MaxPartitions,
			DefaultPartitions))
	}
	if c.BusyTimeout < 0 {
		faults = append(faults, fmt.Errorf("BusyTimeout %s: want a positive time, or 0 for %s", c.BusyTimeout,
			DefaultBusyTimeout))
	}
	if len(faults) > 0 {
		return c, fmt.Errorf("sqlite store: %w", errors.Join(faults...))
	}
	return c, nil
}

// codeOf returns the result code of errors that offer it as a method.
func codeOf(err error) int {
	if e, ok := errors.AsType[interface {
		error
		Code() int
	}](err); ok {
		return e.Code()
	}
	return 0
}
