package inbox

import (
	"context"
	"slices"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/attempt"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// removeEvery is the interval between removals of expired claims.
const removeEvery = time.Minute

// removeLoop removes the IDs of messages that can no longer be redelivered, in small batches.
func (c *Consumer[Tx]) removeLoop(ctx context.Context) {
	for wait := time.Second; attempt.Sleep(ctx, wait); {
		n, err := c.removeExpired(ctx)
		if err != nil && ctx.Err() == nil {
			c.cfg.Logger.Warn("consumer cannot remove old IDs and will try again", "consumer", c.cfg.Name, "error", err)
		}
		wait = removeEvery
		if n == removeBatch {
			wait = 10 * time.Millisecond // let others write in between
		}
	}
}

// removeExpired removes IDs that are no longer needed. The IDs of messages beyond the position in a log are.
func (c *Consumer[Tx]) removeExpired(ctx context.Context) (n int, err error) {
	age := c.cfg.KeepIDs
	if c.log != nil {
		longer, err := c.log.keptLonger(ctx)
		if err != nil {
			return 0, err
		}
		age += longer
	}
	return c.store.RemoveClaims(ctx, c.cfg.Name, age, removeBatch)
}

// keptLonger is how much longer than KeepIDs IDs are kept, because messages beyond a position are read again after a crash. A partition
// that the log does not have any more is not read again; its position would keep all IDs forever.
func (s *logSource[Tx]) keptLonger(ctx context.Context) (longer time.Duration, err error) {
	positions, err := s.c.store.LogPositions(ctx, s.c.cfg.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range positions {
		p := &positions[i]
		if s.parts == nil || slices.ContainsFunc(s.parts, func(part postrider.LogPartition) bool { return beginsWith(part, p, positions) }) {
			longer = max(longer, p.Moved+p.Open)
		}
	}
	return longer, err
}

// beginsWith reports whether reading a partition of a log may begin with a position: its own, that in the whole until the part has one since
// the log was divided, or that in a part until the whole is read again.
func beginsWith(part postrider.LogPartition, p *store.LogPosition, positions []store.LogPosition) bool {
	switch p.Partition {
	case part.Name:
		return true
	case part.Whole:
		return !slices.ContainsFunc(positions, func(own store.LogPosition) bool { return own.Partition == part.Name && own.Follows(p) })
	}
	return slices.ContainsFunc(positions, func(whole store.LogPosition) bool { return whole.Partition == part.Name && p.Follows(&whole) })
}

// noteWindow says, in the log and for operators, what is wrong with the time for which IDs are kept.
func (c *Consumer[Tx]) noteWindow(ctx context.Context) {
	text := c.cfg.tooShort(c.caps)
	if text != "" {
		c.cfg.Logger.Warn("a message may have its effect twice: "+text, "consumer", c.cfg.Name)
	}
	notes, err := stored.Notes(ctx, c.store, stored.NoteWindow)
	before := ""
	for _, n := range notes {
		if n.ID == c.cfg.Name {
			before = string(n.Body)
		}
	}
	if err == nil && text != before {
		err = stored.Note(ctx, c.store, stored.NoteWindow, c.cfg.Name, text)
	}
	if err != nil && c.life.Err() == nil {
		c.cfg.Logger.Debug("the note about the time for which IDs are kept cannot be written", "consumer", c.cfg.Name, "error", err)
	}
}
