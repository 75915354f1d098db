package stored

import (
	"cmp"
	"context"
	"fmt"
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

// Try calls attempt until it gets its locks; busy says whether an error means that it did not. When there is no time for another
// attempt, the error is store.ErrInUse, and names the holders of the locks.
func (p Patience) Try(ctx context.Context, attempt func() error, busy func(error) bool, holders func(context.Context) ([]string, error)) error {
	began := time.Now()
	deadline := began.Add(p.Total)
	if d, ok := ctx.Deadline(); ok {
		deadline = d
	}
	var found error // the last error of an attempt that did not get its locks
	for {
		err := attempt()
		switch {
		case err == nil, ctx.Err() == nil && !busy(err), found == nil && !busy(err):
			return err
		case busy(err):
			found = err
		}
		if ctx.Err() != nil || time.Until(deadline) < p.Pause+p.Lock {
			return inUse(ctx, time.Since(began), holders, found)
		}
		select {
		case <-time.After(p.Pause):
		case <-ctx.Done():
		}
	}
}

// readHolders limits how long it takes to say who holds the locks, after a context that may have ended.
const readHolders = 10 * time.Second

func inUse(ctx context.Context, waited time.Duration, holders func(context.Context) ([]string, error), cause error) error {
	reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), readHolders)
	defer cancel()
	list, err := holders(reading)
	who := cmp.Or(strings.Join(list, "; "), "whoever held them has ended")
	if err != nil {
		who = fmt.Sprintf("who holds them cannot be read (%v)", err)
	}
	err = fmt.Errorf("%w: the migration did not get its locks within %s: %s. When that has ended, run the migration again: %w",
		store.ErrInUse, plain.Duration(waited, " "), who, cause)
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return err
}
