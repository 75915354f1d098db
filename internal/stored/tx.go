package stored

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/postrider/postrider/store"
)

// Tx runs statements in a transaction of a store over database/sql.
type Tx struct {
	Query
	// Exec runs a statement and returns how many rows it changed.
	Exec func(ctx context.Context, text string, args ...any) (int64, error)
}

// ExecAll runs statements with the same parameters, and returns how many rows they changed.
func (t Tx) ExecAll(ctx context.Context, texts []string, args ...any) (n int64, err error) {
	for _, text := range texts {
		changed, err := t.Exec(ctx, text, args...)
		if err != nil {
			return n, err
		}
		n += changed
	}
	return n, nil
}

// CheckStopped returns store.ErrAlive if a statement finds a process of a relay that is alive: relay, process and host.
func CheckStopped(ctx context.Context, q Query, living string, args ...any) error {
	var relay, owner, host string
	err := q.Get(ctx, living, args, &relay, &owner, &host)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: %s of relay %s on host %s; stop it, or wait until its lease has ended if it was killed",
		store.ErrAlive, owner, relay, host)
}

// Undelivered says that a relay has not delivered everything.
func Undelivered(relay string, partition int) error {
	return fmt.Errorf("%w: %s in partition %d; run it until its backlog is 0 while nothing is published, then stop it; or "+
		"remove it if it is gone for good", store.ErrUndelivered, relay, partition)
}

// Resolve resolves dead letters one by one. found has those that were locked, by number.
func Resolve[D any](
	ctx context.Context, found map[int64]D, numbers []int64, how store.Resolution,
	discard, redrive func(ctx context.Context, d D, how store.Resolution) error,
) error {
	resolve := discard
	if how.State == store.DeadRedriven {
		resolve = redrive
	}
	for _, number := range numbers {
		if err := resolve(ctx, found[number], how); err != nil {
			return fmt.Errorf("dead letter %d: %w", number, err)
		}
	}
	return nil
}
