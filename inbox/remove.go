package inbox

import (
	"context"
	"time"
)

const (
	// defaultKeep is how long the records of Process are kept.
	defaultKeep = 90 * 24 * time.Hour
	// removeTimeout bounds one removal of old records.
	removeTimeout = 30 * time.Second
)

// KeepRecords sets how long the records of Process are kept: a message that is delivered again later is new. Once a minute, a
// call of Process removes what is older, in the background and in transactions of its own. Default: 90 days; negative: they
// stay until RemoveOlder. It does not concern a Consumer, which has ConsumerConfig.KeepIDs.
func (in *Inbox[Tx]) KeepRecords(d time.Duration) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.keep = d
}

// Close waits until no old records are being removed; none are removed afterwards. Call it before you close the database. Errors:
// that of ctx.
func (in *Inbox[Tx]) Close(ctx context.Context) error {
	in.mu.Lock()
	in.closed = true
	in.mu.Unlock()
	ended := make(chan struct{})
	go func() { defer close(ended); in.removing.Wait() }()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// removeOld removes old records of a consumer, if it is time. It does not run in the caller's transaction, which would lock them, nor
// wait: a database with one writer removes them when that transaction has ended. If it fails, they stay for another minute.
func (in *Inbox[Tx]) removeOld(consumer string) {
	now := time.Now()
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed || in.keep < 0 || now.Before(in.removeAt[consumer]) {
		return
	}
	in.removeAt[consumer] = now.Add(removeEvery)
	keep := in.keep
	in.removing.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
		defer cancel()
		_, _ = in.RemoveOlder(ctx, consumer, keep) // what is wrong with the database, Process reports
	})
}
