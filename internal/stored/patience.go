package stored

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/plain"
	"github.com/postrider/postrider/store"
)

// Patience says how long a migration waits for the locks of tables.
type Patience struct {
	// Lock is for one lock. Others wait behind the migration no longer than that. It is longer than PostgreSQL's deadlock_timeout, after
	// which the server ends an autovacuum that is in the way.
	Lock time.Duration
	// Pause is between two attempts, during which the migration holds nothing.
	Pause time.Duration
	// Total is for all attempts, unless the context has a deadline.
	Total time.Duration
}

// DefaultPatience is that of migrations.
var DefaultPatience = Patience{Lock: 3 * time.Second, Pause: 5 * time.Second, Total: time.Minute}

// Locking is a migration, or a statement of one, that needs the locks of tables.
type Locking struct {
	// Attempt tries to get the locks; Busy says whether its error means that it did not.
	Attempt func() error
	Busy    func(error) bool
	// Holders describes who holds the locks.
	Holders func(context.Context) ([]string, error)
	// Logger gets one line, when the first attempt has not got its locks and another one follows.
	Logger *slog.Logger
}

// Try makes attempts until one gets its locks. When there is no time for another one, the error is store.ErrInUse, and names the holders
// of the locks.
func (p Patience) Try(ctx context.Context, l Locking) error {
	began := time.Now()
	deadline := began.Add(p.Total)
	if d, ok := ctx.Deadline(); ok {
		deadline = d
	}
	var found error // the last error of an attempt that did not get its locks
	for {
		err := l.Attempt()
		first := found == nil
		switch {
		case err == nil, ctx.Err() == nil && !l.Busy(err), found == nil && !l.Busy(err):
			return err
		case l.Busy(err):
			found = err
		}
		if ctx.Err() != nil || time.Until(deadline) < p.Pause+p.Lock {
			return inUse(ctx, time.Since(began), l.Holders, found)
		}
		if first {
			l.Logger.WarnContext(ctx, "migration waits for locks and tries again", "holders", who(ctx, l.Holders), "until", deadline.Round(time.Second))
		}
		select {
		case <-time.After(p.Pause):
		case <-ctx.Done():
		}
	}
}

// readHolders limits how long it takes to say who holds the locks, after a context that may have ended.
const readHolders = 10 * time.Second

// who names those who hold the locks.
func who(ctx context.Context, holders func(context.Context) ([]string, error)) string {
	reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), readHolders)
	defer cancel()
	list, err := holders(reading)
	if err != nil {
		return fmt.Sprintf("who holds them cannot be read (%v)", err)
	}
	return cmp.Or(strings.Join(list, "; "), "whoever held them has ended")
}

func inUse(ctx context.Context, waited time.Duration, holders func(context.Context) ([]string, error), cause error) error {
	err := fmt.Errorf("%w: the migration did not get its locks within %s: %s. When that has ended, run the migration again: %w",
		store.ErrInUse, plain.Duration(waited, " "), who(ctx, holders), cause)
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return err
}
