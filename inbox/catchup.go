package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/attempt"
)

// catchUpLook is how long CatchUp waits for a further message when it looks whether a log has more for this consumer. A broker that has not
// answered yet gets verifyTimeout.
const catchUpLook = time.Second

// CatchUp waits until everything that the source had at the call has been processed, parked or dead-lettered by this consumer, in
// any process. It is for decisions that must not be made while new messages wait in the broker. Errors: ErrNoEnd if the source is not a log
// (postrider.SubscriberCapabilities.Log); that of ctx; those of the broker and the store.
func (c *Consumer[Tx]) CatchUp(ctx context.Context) error {
	if c.log == nil {
		return fmt.Errorf("consumer %s: %w", c.cfg.Name, ErrNoEnd)
	}
	var parts []postrider.LogPartition
	at := make(map[string]int64) // positions at the last look
	for {
		if len(parts) == 0 || !c.log.has(parts) { // nobody reads partitions that the log had before it was divided, or while it was
			var err error
			if parts, err = c.log.log.Partitions(ctx); err != nil {
				return fmt.Errorf("consumer %s: find the end of its log: %w", c.cfg.Name, err)
			}
			clear(at)
		}
		open, err := c.unread(ctx, parts, at)
		switch {
		case err != nil:
			return fmt.Errorf("consumer %s: compare its positions with its log: %w", c.cfg.Name, err)
		case len(open) == 0:
			return nil
		case !attempt.Sleep(ctx, 2*moveEvery):
			return ctx.Err()
		}
		parts = open
	}
}

// unread returns the partitions that are not read up to their End. A log can end with messages for others, which positions do not
// count: where a position has not moved since the last look, at, the log says whether there is more.
func (c *Consumer[Tx]) unread(ctx context.Context, parts []postrider.LogPartition, at map[string]int64) (open []postrider.LogPartition, err error) {
	positions, err := c.store.LogPositions(ctx, c.cfg.Name)
	if err != nil {
		return nil, err
	}
	read := make(map[string]int64)
	for i := range positions {
		for _, p := range parts {
			if p.Name == positions[i].Partition && p.Incarnation == positions[i].Incarnation && positions[i].IsCurrent(positions) {
				read[p.Name] = positions[i].Offset
			}
		}
	}
	for _, p := range parts {
		offset, known := read[p.Name]
		if !known {
			offset = p.First - 1
		}
		if offset >= p.End {
			continue
		}
		if before, looked := at[p.Name]; looked && before == offset {
			more, err := c.hasMore(ctx, p, offset)
			if err != nil {
				return nil, err
			}
			if !more {
				continue
			}
		}
		at[p.Name] = offset
		open = append(open, p)
	}
	return open, nil
}

// hasMore looks whether a log has a message for this consumer after an offset, up to its End. It reads from the message at the
// offset on: once the broker has returned that one, silence means that no other follows.
func (c *Consumer[Tx]) hasMore(ctx context.Context, p postrider.LogPartition, after int64) (bool, error) {
	reader, err := c.log.log.ReadLog(ctx, p, after-1)
	if err != nil {
		return false, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = reader.Close(ctx) // the broker removes what is left of it
	}()
	for silence := verifyTimeout; ; silence = catchUpLook {
		next, err := readNext(ctx, reader, silence)
		switch {
		case err == nil && next.Position.Offset >= p.End && nothing(next):
			return false, nil
		case err == nil && next.Position.Offset > after && !nothing(next):
			return next.Position.Offset <= p.End, nil
		case err == nil: // what is at the offset
		case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) && postrider.OutcomeOf(err).Kind != postrider.BrokerUnavailable:
			return false, nil
		default:
			return false, err
		}
	}
}

// readNext returns the next delivery. It waits for a limited time.
func readNext(ctx context.Context, reader postrider.LogReader, limit time.Duration) (*postrider.Delivery, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	found, err := reader.Read(ctx, 1, 1)
	if err != nil {
		return nil, err
	}
	return found[0], nil
}
